/* A plugin: each function is one of the C library's by another name, to which a jump leads. */
#define _GNU_SOURCE

#define WRAP(name) \
	__asm__(".globl plugin_" #name "\n.type plugin_" #name ", @function\nplugin_" #name ":\n\tjmp *" #name "@GOTPCREL(%rip)\n")

WRAP(read); WRAP(write); WRAP(recv); WRAP(send); WRAP(recvfrom); WRAP(sendto); WRAP(recvmsg); WRAP(sendmsg);
WRAP(readv); WRAP(writev); WRAP(preadv2); WRAP(pwritev2); WRAP(recvmmsg); WRAP(sendmmsg); WRAP(syscall);
WRAP(splice); WRAP(sendfile); WRAP(epoll_create1); WRAP(epoll_ctl); WRAP(epoll_wait); WRAP(epoll_pwait);
WRAP(poll); WRAP(ppoll); WRAP(select); WRAP(pselect); WRAP(ioctl); WRAP(dup); WRAP(dup2); WRAP(dup3);
WRAP(fcntl); WRAP(close); WRAP(setsockopt); WRAP(getsockopt); WRAP(shutdown);
