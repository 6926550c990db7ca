// Command budget runs `go test` and tells at the end what each package took
// against its budget: `budget SUITE go test ARGUMENTS`. What it prints on the way
// is what `go test` prints. Time never fails a test: its exit code is that of
// `go test`, and a budget that is exceeded is only marked.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"
)

func main() {
	code, err := run(os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "budget:", err)
		code = 2
	}
	os.Exit(code)
}

// run runs the suite and returns the exit code of `go test`.
func run(args []string, stdout, stderr io.Writer) (int, error) {
	if len(args) < 3 || args[1] != "go" || args[2] != "test" {
		return 0, errors.New("usage: budget SUITE go test ARGUMENTS")
	}
	suite, ok := suites()[args[0]]
	if !ok {
		return 0, fmt.Errorf("suite %q has no budget; add it to test/budget/budgets.go", args[0])
	}
	argv := slices.Insert(slices.Clone(args[1:]), 2, "-json")
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	started := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	r := newReport()
	readErr := r.read(out, stdout)
	if readErr != nil {
		_, _ = io.Copy(io.Discard, out) // so that it ends
	}
	err = cmd.Wait()
	r.table(stdout, args[0], suite, time.Since(started))
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), nil
	}
	return 0, errors.Join(err, readErr)
}
