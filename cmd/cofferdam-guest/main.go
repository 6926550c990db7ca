// Command cofferdam-guest is the first process of a sandbox. It takes no
// arguments and talks to the worker on its standard input and output.
package main

import (
	"context"
	"fmt"
	"os"
)

func main() {
	if err := Run(context.Background(), os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "cofferdam-guest:", err)
		os.Exit(1)
	}
}
