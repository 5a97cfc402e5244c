// states.c prints the steps of a connection's life, a line each: state, event, what it becomes,
// what is done. With an argument it prints those of an operation: stage, event, what it becomes.
#include <stdio.h>

#include "../src/state.h"

static void stages(void)
{
	for (int s = 0; s < TX_STAGES; s++)
		for (int i = 0; i < TX_EVENTS; i++) {
			enum stage at = (enum stage)s;
			if (tx_step(&at, (enum tx_event)i))
				printf("%s %s %s\n", exfi_stage_names[s], exfi_tx_event_names[i], exfi_stage_names[at]);
		}
}

int main(int argc, char **argv)
{
	(void)argv;
	if (argc > 1) {
		stages();
		return 0;
	}
	for (int s = 0; s < STATES; s++)
		for (int i = 0; i < INPUTS; i++) {
			enum state at = (enum state)s;
			enum act act = state_step(&at, (enum input)i);
			if (act != ACTS)
				printf("%s %s %s %s\n", exfi_state_names[s], exfi_input_names[i], exfi_state_names[at], exfi_act_names[act]);
		}
	return 0;
}
