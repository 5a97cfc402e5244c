package suites

import (
	"strconv"
	"strings"
)

// runtimeScenarios are sockets of languages and of Java's servers, which no test had run before 22
// November 2026. They are all for -full or by name.
func runtimeScenarios() []scenario {
	port := strconv.Itoa(frontPort)
	echo := func(name string, needs map[string]string, serve func(s *stage)) scenario {
		needs["python3"] = "python3"
		return scenario{
			name: name, long: true, needs: needs, serve: serve,
			check: func(s *stage) { s.do(python, s.script("echo.py"), "client", port, strconv.Itoa(size(8<<20, 64<<20))) },
		}
	}
	java := func(class, jars string, options ...string) func(s *stage) {
		return func(s *stage) {
			path := s.dir + jars
			s.prepare("javac", "-cp", path, "-d", s.dir, s.script(class+".java"))
			s.server(frontPort, append(append([]string{"java", "-cp", path}, options...), class, port)...)
		}
	}
	return []scenario{
		echo("netty", map[string]string{"javac": "default-jdk-headless", "/usr/share/java/netty-all.jar": "libnetty-java"}, java("Netty", nettyJars)),
		echo("nio2", map[string]string{"javac": "default-jdk-headless"}, java("Nio2", "")),
		echo("tcl", map[string]string{"tclsh": "tcl"}, func(s *stage) { s.server(frontPort, "tclsh", s.script("echo.tcl"), port) }),
		echo("php-select", map[string]string{"php": "php-cli"}, func(s *stage) { s.server(frontPort, "php", "-n", s.script("echo.php"), port) }),
		{
			name: "activemq", long: true, // Java, a thread for each connection or selectors
			needs: map[string]string{"java": "default-jdk-headless", "/usr/share/activemq/bin/activemq.jar": "activemq"},
			serve: serveActiveMQ,
			check: func(s *stage) {
				for _, port := range []int{frontPort, backPort} {
					s.do(python, s.script("stomp.py"), strconv.Itoa(port), strconv.Itoa(size(300, 3000)))
				}
			},
		},
		{
			name: "zookeeper", long: true, // Java, selectors in threads
			needs: map[string]string{"java": "default-jdk-headless", "/usr/share/java/zookeeper.jar": "zookeeper"},
			serve: serveZooKeeper, check: checkZooKeeper,
		},
		{
			name: "jetty", long: true, // Java, selectors in threads
			needs: map[string]string{"java": "default-jdk-headless", "/usr/share/jetty9/start.jar": "jetty9", "curl": "curl", "ab": "apache2-utils", "wget": "wget"},
			serve: serveJetty,
			check: func(s *stage) {
				checkWeb(s)
				ab(s, size(1000, 10000))
				s.do("wget", "-q", "-r", "-nH", "-P", s.path("mirror"), "http://127.0.0.1:"+port+"/tree/")
				s.prepare("sh", "-c", "for f in www/tree/*.bin; do cmp $f mirror/tree/${f##*/} || exit; done")
			},
			load: func(s *stage) { ab(s, size(2000, 10000)) },
		},
		{
			name: "erlang-nodes", long: true, // two nodes, and the daemon by which they find each other
			needs: map[string]string{"erl": "erlang-base"},
			serve: func(s *stage) {
				s.server(4369, "epmd", "-address", "127.0.0.1")
				s.server(frontPort, "erl", "-noshell", "-sname", "one@localhost", "-setcookie", "c", "-start_epmd", "false", "-kernel", "inet_dist_listen_min", port, "inet_dist_listen_max", port)
			},
			check: func(s *stage) {
				s.do("erl", "-noshell", "-sname", "two@localhost", "-setcookie", "c", "-start_epmd", "false", "-eval", `
B = crypto:strong_rand_bytes(4194304), N = 'one@localhost',
B = rpc:call(N, erlang, list_to_binary, [[B]], 60000),
[I = rpc:call(N, erlang, abs, [-I], 60000) || I <- lists:seq(1, `+strconv.Itoa(size(1000, 20000))+`)],
halt(0).`)
			},
		},
		{
			name: "ffmpeg", long: true, // a listener that is closed after it has accepted
			needs: map[string]string{"ffmpeg": "ffmpeg"},
			serve: func(*stage) {},
			check: checkFFmpeg,
		},
	}
}

// nettyJars are Debian's, behind a folder in a class path.
var nettyJars = ":" + strings.Join([]string{"/usr/share/java/netty-all.jar", "/usr/share/java/netty-buffer.jar", "/usr/share/java/netty-common.jar",
	"/usr/share/java/netty-transport.jar", "/usr/share/java/netty-resolver.jar", "/usr/share/java/netty-codec.jar", "/usr/share/java/netty-handler.jar"}, ":")

func serveActiveMQ(s *stage) {
	s.file("broker.xml", s.expand(`<beans xmlns="http://www.springframework.org/schema/beans" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
 xsi:schemaLocation="http://www.springframework.org/schema/beans http://www.springframework.org/schema/beans/spring-beans.xsd http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
<broker xmlns="http://activemq.apache.org/schema/core" brokerName="b" persistent="false" useJmx="false" dataDirectory="$RUN/data"><transportConnectors>
<transportConnector name="stomp" uri="stomp://127.0.0.1:`+strconv.Itoa(backPort)+`"/>
<transportConnector name="nio" uri="stomp+nio://127.0.0.1:`+strconv.Itoa(frontPort)+`"/>
</transportConnectors></broker></beans>
`))
	s.server(frontPort, "java", "-Dactivemq.home=/usr/share/activemq", "-Dactivemq.base="+s.dir, "-Dactivemq.conf="+s.dir, "-Dactivemq.data="+s.path("data"),
		"-jar", "/usr/share/activemq/bin/activemq.jar", "start", "xbean:file:"+s.path("broker.xml"))
}

func serveZooKeeper(s *stage) {
	s.server(frontPort, "java", "-cp", zooJars, "-Dzookeeper.admin.enableServer=false", "org.apache.zookeeper.server.quorum.QuorumPeerMain",
		s.file("zoo.cfg", s.expand("tickTime=2000\ndataDir=$RUN/data\nclientPortAddress=127.0.0.1\nclientPort="+strconv.Itoa(frontPort)+"\n")))
}

var zooJars = strings.Join([]string{"/usr/share/java/zookeeper.jar", "/usr/share/java/zookeeper-jute.jar", "/usr/share/java/slf4j-api.jar", "/usr/share/java/slf4j-nop.jar",
	"/usr/share/java/jline.jar", "/usr/share/java/commons-cli.jar", "/usr/share/java/metrics-core.jar", "/usr/share/java/snappy-java.jar", "/usr/share/java/audience-annotations.jar",
	"/usr/share/java/netty-all.jar", "/usr/share/java/netty-handler.jar", "/usr/share/java/netty-transport.jar", "/usr/share/java/netty-common.jar", "/usr/share/java/netty-buffer.jar"}, ":")

func checkZooKeeper(s *stage) {
	s.Helper()
	var commands, want strings.Builder
	commands.WriteString("create /first x\n") // what the client says about its connection comes between the first ones
	for i := range size(300, 3000) {
		value := strconv.Itoa(i) + strings.Repeat("v", i%300)
		commands.WriteString("create /n" + strconv.Itoa(i) + " " + value + "\nget /n" + strconv.Itoa(i) + "\n")
		want.WriteString(value + "\n")
	}
	s.file("commands", commands.String())
	s.file("want", want.String())
	s.do("sh", "-c", `java -cp "$1" org.apache.zookeeper.ZooKeeperMain -server "$2" < commands > out 2> err; grep -E "^[0-9]+v*$" out > got`, "sh", zooJars, "127.0.0.1:"+strconv.Itoa(frontPort))
	s.same(s.path("got"), s.path("want"))
}

func serveJetty(s *stage) {
	site(s)
	var links strings.Builder
	for i := range 30 {
		name := strconv.Itoa(i) + ".bin"
		s.random("www/tree/"+name, 10000*(i+1))
		links.WriteString(`<a href="` + name + `">x</a>`)
	}
	s.file("www/tree/index.html", links.String())
	s.file("webapps/root.xml", s.expand(`<?xml version="1.0"?><!DOCTYPE Configure PUBLIC "-//Jetty//Configure//EN" "http://www.eclipse.org/jetty/configure_9_3.dtd">
<Configure class="org.eclipse.jetty.server.handler.ContextHandler"><Set name="contextPath">/</Set><Set name="handler">
<New class="org.eclipse.jetty.server.handler.ResourceHandler"><Set name="resourceBase">$RUN/www</Set></New></Set></Configure>
`))
	s.server(frontPort, "java", "-jar", "/usr/share/jetty9/start.jar", "jetty.home=/usr/share/jetty9", "jetty.base="+s.dir, "--module=http,deploy", "jetty.http.host=127.0.0.1", "jetty.http.port="+strconv.Itoa(frontPort))
}

// checkFFmpeg sends sound from one ffmpeg to another.
func checkFFmpeg(s *stage) {
	s.Helper()
	s.random("sound", 8<<20)
	url := "tcp://127.0.0.1:" + strconv.Itoa(frontPort)
	server := s.server(frontPort, "ffmpeg", "-nostdin", "-v", "error", "-y", "-f", "s16le", "-ar", "48000", "-ac", "2", "-i", url+"?listen=1", "-f", "s16le", "-c", "copy", s.path("got"))
	s.do("ffmpeg", "-nostdin", "-v", "error", "-f", "s16le", "-ar", "48000", "-ac", "2", "-i", s.path("sound"), "-c", "copy", "-f", "s16le", url)
	s.ended(server)
	s.same(s.path("got"), s.path("sound"))
}
