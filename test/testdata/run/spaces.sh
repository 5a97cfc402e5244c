# Makes the network namespaces server, 10.9.0.1, and client, 10.9.0.2, and a link between them.
for n in server client; do ip netns add "$n"; ip -n "$n" link set lo up; done
ip link add s netns server type veth peer name c netns client
ip -n server addr add 10.9.0.1/24 dev s
ip -n client addr add 10.9.0.2/24 dev c
ip -n server link set s up
ip -n client link set c up
