// states.c prints the steps of a port and of a peer, a line each: state, event, what it becomes. It
// needs no node.
#include <stdio.h>

#include "../core/state.h"

int main(void)
{
	for (int s = 0; s < EXN_PORT_STATES; s++)
		for (int e = 0; e < EXN_PORT_EVENTS; e++) {
			enum exn_port_state at = (enum exn_port_state)s;
			if (exn_port_step(&at, (enum exn_port_event)e))
				printf("%s %s %s\n", exn_port_state_names[s], exn_port_event_names[e], exn_port_state_names[at]);
		}
	for (int s = 0; s < EXN_PEER_STATES; s++)
		for (int e = 0; e < EXN_PEER_EVENTS; e++) {
			enum exn_peer_state at = (enum exn_peer_state)s;
			if (exn_peer_step(&at, (enum exn_peer_event)e))
				printf("%s %s %s\n", exn_peer_state_names[s], exn_peer_event_names[e], exn_peer_state_names[at]);
		}
	return 0;
}
