#!/bin/bash
# A debugger and its server: registers, memory, a file carried over.
# needs: gdbserver=gdbserver gdb=gdb gcc=gcc
# port: 0
# tcp: it asks for SIGIO
. "${0%/*}/lib.sh"

check() {
	random blob $((2 << 20))
	printf '#include <unistd.h>\nunsigned char area[1 << 20]; int turns;\n__attribute__((noinline)) void step(void) { __asm__ volatile(""); turns++; }\nint main(void) { for (int i = 0; i < 1 << 20; i++) area[i] = (unsigned char)(i * 31); for (int i = 0; i < 50; i++) step(); return turns == 50 ? 7 : 1; }\n' > t.c
	gcc -g -o t t.c
	gdbserver "127.0.0.1:$PORT" ./t > server.out 2>&1 &
	listens "$PORT"
	cat > cmds <<-X
	set pagination off
	target remote 127.0.0.1:$PORT
	remote put blob $PWD/blob2
	break step
	commands
	silent
	end
	continue
	dump binary memory area.bin area ((char *)&area)+1048576
	set \$i = 0
	while \$i < 49
	continue
	set \$i = \$i + 1
	end
	print turns
	delete
	continue
	X
	gdb -q -batch -nx -x cmds ./t > said 2>&1
	grep -q '^\$1 = 49$' said
	grep -q 'exited with code 07' said
	python3 -c 'import sys; sys.stdout.buffer.write(bytes(i * 31 & 255 for i in range(1 << 20)))' > area.want
	same area.bin area.want
	same blob2 blob
	wait
}

run "$@"
