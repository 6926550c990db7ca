package sandbox

import "context"

// Freezer stops what runs in a sandbox. Implemented by the drivers.
type Freezer interface {
	// Freeze stops every process of the sandbox, for good: nothing is started, ended
	// or resumed in it from then on, by its limits neither; what is in it can be
	// read, and it can be destroyed. It may be repeated. An error says that something
	// may still run.
	Freeze(ctx context.Context, id string) error
}
