package cli

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/cofferdam/cofferdam/internal/cli/show"
	"github.com/cofferdam/cofferdam/internal/supervise"
)

// detach starts the supervisor in a session of its own and returns when it is
// ready, or says why it is not. An installation that runs already is as good.
func detach(ctx context.Context, o upOptions, stdio Stdio) error {
	if r, ok := supervise.Running(o.Data); ok {
		return alreadyRuns(r, o, stdio)
	}
	log, err := supervise.OpenUpLog(o.Data)
	if err != nil {
		return err
	}
	defer log.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("up: %w", err)
	}
	defer read.Close()
	cmd := exec.Command(o.Hold[0], upArgs(o)...)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{write}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	write.Close()
	if err != nil {
		return fmt.Errorf("up: %w", err)
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	// An interrupt while waiting stops the start.
	ended := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(os.Interrupt) })
	t, err := readTold(read)
	ended()
	switch {
	case ctx.Err() != nil:
		_ = cmd.Wait()
		return ctx.Err()
	case err != nil:
		return problem("infra.internal", "the supervisor ended (%v) before it was ready; see %s", cmd.Wait(), log.Name())
	case t.Error != nil:
		_ = cmd.Wait()
		return problem(t.Error.Code, "%s", t.Error.Detail)
	}
	return printReady(*t.Ready, o.json, stdio)
}

func alreadyRuns(r supervise.Ready, o upOptions, stdio Stdio) error {
	if !o.json {
		fmt.Fprintf(stdio.Err, "note: the installation in %s runs already (process %d); to change how, stop it first with `cofferdam down --data %s`\n", show.Line(r.Data), r.PID, show.Line(r.Data))
	}
	return printReady(r, o.json, stdio)
}

// imagesFlag is absolute unless it is the word that switches images off.
func imagesFlag(images string) string {
	if images == "off" {
		return images
	}
	return absolute(images)
}

// upArgs are the arguments of the supervisor in the background. Paths are
// absolute, since it works in the root folder.
func upArgs(o upOptions) []string {
	args := []string{"up", "--ready-fd", "3", "--data", absolute(o.Data), "--listen", o.Listen}
	for _, f := range []struct{ name, value string }{
		{"--policy-operator", absolute(o.OperatorPolicy)},
		{"--prices", absolute(o.Prices)},
		{"--dns", o.DNS},
		{"--roots", absolute(o.Roots)},
		{"--images", imagesFlag(o.Images)},
		{"--hosts", o.Hosts},
		{"--issuer", o.Issuer},
		{"--bin", absolute(o.Bin)},
		{"--service-user", o.ServiceUser},
		{"--gateway-user", o.GatewayUser},
	} {
		if f.value != "" {
			args = append(args, f.name, f.value)
		}
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"--identity-publish-delay", o.PublishDelay}, {"--keep-tasks", o.KeepTasks}, {"--keep-outputs", o.KeepOutputs}} {
		if f.value != 0 {
			args = append(args, f.name, f.value.String())
		}
	}
	if o.ListenPublic {
		args = append(args, "--listen-public")
	}
	return args
}
