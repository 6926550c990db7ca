// Command cofferdam-attack is what `cofferdam doctor --attack` runs inside of its
// sandboxes: it tries what must not work, and says what came of it.
package main

import (
	"context"
	"fmt"
	"os"
)

func main() {
	if err := Run(context.Background(), os.Args, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cofferdam-attack:", err)
		os.Exit(1)
	}
}
