// Package soak runs a thousand small tasks on one platform while its daemons,
// its supervisor and the kernels of its sandboxes are killed at random and some
// tasks are cancelled, and then looks at what is left: `make soak`, not in CI.
//
// Words. The storm is the part of the tasks during which things are killed; the
// calm is the rest, in which the memory of the daemons is judged (in the storm it
// is only told). A run is one process of an agent: it tells a server outside
// that it began, with a number that it drew, so that a second run in one attempt
// shows.
//
// The variables COFFERDAM_SOAK_TASKS (1000), COFFERDAM_SOAK_MINUTES (0: until all
// tasks have ended), COFFERDAM_SOAK_PARALLEL (6), COFFERDAM_SOAK_PAUSE (the mean
// time between kills, 5s) and COFFERDAM_SOAK_SEED (drawn and printed) say how
// much. test/soak/fuzz is the other half: every fuzz target for a while.
package soak
