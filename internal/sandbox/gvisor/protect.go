package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/internal/guest"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/sandbox/gvisor/denial"
	"github.com/cofferdam/cofferdam/internal/task"
)

var _ sandbox.Protector = (*Driver)(nil)

// protectLimit bounds one protection: a large read-only folder is walked.
const protectLimit = 2 * time.Minute

// protected is the part of the record about file rules.
type protected struct {
	Rules task.FileRules      `json:"rules"`
	Done  task.FileProtection `json:"done"`
}

// Protect implements sandbox.Protector.
func (d *Driver) Protect(ctx context.Context, id string, rules task.FileRules) (task.FileProtection, error) {
	b, err := d.alive(id)
	if err != nil {
		return task.FileProtection{}, err
	}
	if err := rules.Check(); err != nil {
		return task.FileProtection{}, err
	}
	b.protecting.Lock()
	defer b.protecting.Unlock()
	b.mu.Lock()
	have := b.record.Files
	b.mu.Unlock()
	if have != nil {
		if !slices.Equal(have.Rules.Effective(), rules.Effective()) {
			return task.FileProtection{}, task.Fail(task.InputInvalid, fmt.Sprintf("sandbox %q is protected already, by other rules", id), nil)
		}
		return have.Done, nil
	}
	ctx, cancel := context.WithTimeout(ctx, protectLimit)
	defer cancel()
	done, err := b.conn.Protect(ctx, protection(rules))
	if err != nil {
		var refused *guest.Error
		if errors.As(err, &refused) && refused.Reason == guest.ReasonInvalid {
			return task.FileProtection{}, task.Fail(task.PolicyFiles, refused.Text, nil)
		}
		return task.FileProtection{}, b.failure(err)
	}
	if err := d.watchFiles(ctx, b, rules, done); err != nil {
		return task.FileProtection{}, err
	}
	files := &protected{Rules: rules, Done: task.FileProtection{
		Rules: rules.Effective(), Widened: rules.Widened(), Placeholders: done.Placeholders, Replaced: done.Replaced, Submodules: done.Also,
	}}
	b.mu.Lock()
	defer b.mu.Unlock()
	changed := b.record
	changed.Files = files
	if err := writeRecord(b.dir, changed); err != nil {
		return task.FileProtection{}, task.Fail(task.InfraStorage, "the sandbox's record can't be written", err)
	}
	b.record = changed
	return files.Done, nil
}

// protection is what the guest is asked for. What stands for an absent path is
// what tools can live with there.
func protection(rules task.FileRules) guest.Protection {
	var p guest.Protection
	for _, r := range rules.Effective() {
		rule := guest.PathRule{Path: r.Path, Access: string(r.Access)}
		switch r.Path {
		case ".git/config", ".git/config.worktree", ".git/info/attributes", ".gitattributes", ".gitmodules",
			"opencode.json", ".aider.conf.yml", ".envrc":
			rule.File = true
		case ".mcp.json":
			rule.File, rule.Text = true, "{\"mcpServers\":{}}\n"
		}
		p.Paths = append(p.Paths, rule)
		if inGit, ok := strings.CutPrefix(r.Path, ".git/"); ok && r.From == "default" {
			p.InGit = append(p.InGit, inGit)
		}
	}
	return p
}

// watchFiles makes the sandbox's kernel write down what it refuses. Asked again,
// the old session ends and what it wrote stays.
func (d *Driver) watchFiles(ctx context.Context, b *box, rules task.FileRules, done guest.Protected) error {
	watched := denial.Watched{File: b.denialsPath(), Pinned: []string{}, Protected: []string{}}
	for _, r := range rules.Effective() {
		if r.Access != task.AccessWritable {
			watched.Protected = append(watched.Protected, path.Join(workspace, r.Path))
		}
	}
	for _, p := range done.Also {
		watched.Protected = append(watched.Protected, path.Join(workspace, p))
	}
	for _, p := range done.Pinned {
		watched.Pinned = append(watched.Pinned, path.Join(workspace, p))
	}
	text, err := denial.Session(watched)
	if err != nil {
		return err
	}
	config := filepath.Join(b.dir, "watch.json")
	if err := os.WriteFile(config, text, 0o600); err != nil {
		return task.Fail(task.InfraStorage, "the sandbox's folder can't be written", err)
	}
	log := filepath.Join(b.dir, "watch.log")
	cmd := exec.CommandContext(ctx, d.cfg.Runsc, "--root="+d.runscRoot(), "--log="+log, "trace", "create", "--force", "--config="+config, b.spec().ID)
	cmd.Env = []string{}
	if out, err := cmd.CombinedOutput(); err != nil {
		if dead := b.dead(); dead != nil {
			return dead
		}
		return task.Fail(task.InfraInternal, "the sandbox's kernel does not take the watch on protected files",
			fmt.Errorf("runsc trace create: %w: %.500s %s", err, out, tail(log)))
	}
	return nil
}

func (b *box) denialsPath() string { return filepath.Join(b.dir, "denials") }

// Denials implements sandbox.Protector.
func (d *Driver) Denials(ctx context.Context, id string, after int64) ([]task.FileDenial, error) {
	b, err := d.find(id)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	none := b.record.Files == nil
	b.mu.Unlock()
	if none {
		return nil, ctx.Err()
	}
	list, err := denial.Read(b.denialsPath(), id, after)
	if err != nil {
		return nil, task.Fail(task.InfraStorage, "what was refused can't be read", err)
	}
	return list, ctx.Err()
}
