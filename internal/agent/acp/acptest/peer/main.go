// Command peer is the agent of package acptest as a program, to be run inside a
// sandbox. Its arguments are acts, in JSON, for a turn whose prompt has none.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/cofferdam/cofferdam/internal/agent/acp/acptest"
)

func main() {
	var acts []acptest.Act
	for _, text := range os.Args[1:] {
		var act acptest.Act
		if err := json.Unmarshal([]byte(text), &act); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		acts = append(acts, act)
	}
	acptest.Serve(os.Stdin, os.Stdout, acptest.Options{Loads: os.Getenv("PEER_LOADS") != "", Mode: "auto", Model: true}, acts)
}
