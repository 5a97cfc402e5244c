// states.c prints the steps of a connection's life, a line each: state, event, what it becomes,
// what is done.
#include <stdio.h>

#include "../src/state.h"

int main(void)
{
	for (int s = 0; s < STATES; s++)
		for (int i = 0; i < INPUTS; i++) {
			enum state at = (enum state)s;
			enum act act = state_step(&at, (enum input)i);
			if (act != ACTS)
				printf("%s %s %s %s\n", exfi_state_names[s], exfi_input_names[i], exfi_state_names[at], exfi_act_names[act]);
		}
	return 0;
}
