// Package sandboxtest is the conformance suite of sandbox.Driver: what every
// implementation must do, whatever isolates it. Run it from the
// implementation's own tests.
//
// Words. A factory gives a driver that holds no sandbox and is ready for use.
// Each test makes sandboxes of its own and destroys them.
//
// Not promised: that an implementation which passes isolates anything. What its
// walls are made of it must prove in its own tests.
package sandboxtest

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Factory returns the driver to test. It is called once for the whole suite.
type Factory func(t *testing.T) sandbox.Driver

// Run runs the suite.
func Run(t *testing.T, factory Factory) {
	s := suite{driver: factory(t)}
	before, err := s.driver.Audit(Context(t))
	if err != nil {
		t.Fatal(err)
	}
	s.before = before
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"create", s.testCreate},
		{"create concurrently", s.testCreateConcurrently},
		{"refusals", s.testRefusals},
		{"destroy", s.testDestroy},
		{"expiry is part of the record", s.testExpiry},
		{"output and exit code", s.testOutput},
		{"attach from an offset", s.testAttach},
		{"commands that can't be started", s.testCannotStart},
		{"users, folders, environment", s.testSurroundings},
		{"one process for one command id", s.testOneProcess},
		{"background child", s.testBackgroundChild},
		{"signal", s.testSignal},
		{"timeout ends the tree", s.testTimeout},
		{"no zombies", s.testZombies},
		{"standard input", s.testInput},
		{"terminal", s.testTerminal},
		{"jobs on a terminal", s.testJobs},
		{"living processes", s.testProcesses},
		{"ways to end", s.testEnds},
		{"sudo", s.testSudo},
		{"limit.output tells what was cut", s.testOutputCut},
		{"limit.memory ends the largest", s.testLargestGoes},
		{"limit.pids", s.testPIDs},
		{"limit.inodes", s.testInodes},
		{"limit.files", s.testOpenFiles},
		{"limit.time", s.testWallTime},
		{"output limit", s.testOutputLimit},
		{"memory limit", s.testMemoryLimit},
		{"process limit", s.testProcessLimit},
		{"disk limit", s.testDiskLimit},
		{"no network", s.testNoNetwork},
		{"files in and out", s.testFiles},
		{"hostile tar streams", s.testHostileTars},
		{"links laid inside", s.testLinksInside},
		{"single files", s.testSingleFiles},
		{"names of any bytes", s.testNames},
		{"single files that were shaped", s.testShapedFiles},
		{"limit.disk leaves what was there", s.testDiskFull},
	} {
		t.Run(test.name, test.run)
	}
	t.Run("nothing left", s.testNothingLeft)
}

type suite struct {
	driver sandbox.Driver
	before []sandbox.Leftover // what the machine had before
}

// ID returns a fresh sandbox id.
func ID() string {
	var b [10]byte
	rand.Read(b[:])
	return "sb-" + strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
}

// Create makes a sandbox that is destroyed when the test ends.
func Create(t *testing.T, d sandbox.Driver, spec sandbox.Spec) sandbox.Info {
	t.Helper()
	if spec.ID == "" {
		spec.ID = ID()
	}
	info, err := d.Create(Context(t), spec)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := d.Destroy(ctx, spec.ID); err != nil {
			t.Errorf("destroy: %v", err)
		}
	})
	return info
}

// patience is how long a step may take before the suite calls it stuck. It says
// nothing about how fast it should be.
const patience = 2 * time.Minute

// Context returns a context that ends when a step is stuck.
func Context(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// Result is what a command left.
type Result struct {
	sandbox.Status
	Stdout, Stderr string
}

// Exec runs a command to its end.
func Exec(t *testing.T, d sandbox.Driver, id string, cmd sandbox.Command) Result {
	t.Helper()
	if cmd.ID == "" {
		cmd.ID = "c" + strings.TrimPrefix(ID(), "sb-")
	}
	ctx := Context(t)
	if _, err := d.Start(ctx, id, cmd); err != nil {
		t.Fatalf("start %q: %v", cmd.Argv, err)
	}
	return Follow(t, d, id, cmd.ID, 0)
}

// Follow reads a command's output from offset to its end.
func Follow(t *testing.T, d sandbox.Driver, id, command string, offset int64) Result {
	t.Helper()
	stream, err := d.Attach(Context(t), id, command, offset)
	if err != nil {
		t.Fatalf("attach %s: %v", command, err)
	}
	defer stream.Close()
	var out, errs strings.Builder
	for {
		chunk, err := stream.Next()
		if errors.Is(err, io.EOF) {
			return Result{Status: stream.Status(), Stdout: out.String(), Stderr: errs.String()}
		}
		if err != nil {
			t.Fatalf("output of %s: %v", command, err)
		}
		if chunk.Offset != offset {
			t.Fatalf("output of %s: chunk at %d, want %d", command, chunk.Offset, offset)
		}
		offset += int64(len(chunk.Data))
		if chunk.Fd == 1 {
			out.Write(chunk.Data)
		} else {
			errs.Write(chunk.Data)
		}
	}
}

// Shell runs a shell script to its end.
func Shell(t *testing.T, d sandbox.Driver, id, script string) Result {
	t.Helper()
	return Exec(t, d, id, sandbox.Command{Argv: []string{"/bin/sh", "-c", script}})
}

// Root runs a shell script as the sandbox's root.
func Root(t *testing.T, d sandbox.Driver, id, script string) Result {
	t.Helper()
	return Exec(t, d, id, sandbox.Command{Argv: []string{"/bin/sh", "-c", script}, User: "root"})
}

// Eventually waits for a condition.
func Eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// WantReason fails the test unless err carries the reason.
func WantReason(t *testing.T, what string, err error, reason task.Reason) {
	t.Helper()
	var failure *task.Failure
	if !errors.As(err, &failure) || failure.Reason != reason {
		t.Errorf("%s: got %v, want %s", what, err, reason)
	}
}

func (s suite) testNothingLeft(t *testing.T) {
	ctx := Context(t)
	left, err := s.driver.Audit(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range left {
		if !slices.Contains(s.before, l) {
			t.Errorf("left over: %+v", l)
		}
	}
	infos, err := s.driver.List(ctx)
	if err != nil || len(infos) != 0 {
		t.Errorf("sandboxes at the end: %v, %v", infos, err)
	}
}
