// Command runsc is gVisor's runtime, built from the pinned module so that
// nothing is downloaded by hand. It is built with CGO_ENABLED=0. What the
// sandbox's kernel refuses on protected paths, it writes down outside.
package main

import (
	"gvisor.dev/gvisor/runsc/cli/maincli"
	"gvisor.dev/gvisor/runsc/version"

	"github.com/cofferdam/cofferdam/internal/sandbox/gvisor/denial/sink"
)

func main() {
	// Naming the version package here keeps its link-time variables in the binary.
	_ = version.Version()
	sink.Register()
	maincli.Main()
}
