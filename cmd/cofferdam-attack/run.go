package main

import (
	"context"
	"errors"
	"io"

	"github.com/cofferdam/cofferdam/internal/attack/inside"
)

// Run tries the checks of a plan's file; with a second argument only that one, in
// this process. As "listen" it is the neighbour, "await" waits for that, and
// "reach" asks the server that the sandbox may reach.
func Run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) < 2 || len(args) > 3 {
		return errors.New("usage: cofferdam-attack PLAN [CHECK | listen | await | reach]")
	}
	plan, err := inside.ReadPlan(args[1])
	if err != nil {
		return err
	}
	switch {
	case len(args) == 2:
		return inside.All(ctx, plan, args[:2], out)
	case args[2] == "listen":
		return inside.Listen(ctx, plan)
	case args[2] == "reach":
		return inside.Reach(plan)
	case args[2] == "await":
		return inside.Await(ctx, plan)
	default:
		return inside.One(plan, args[2], out)
	}
}
