package evidence

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/cofferdam/cofferdam/internal/audit/evidence"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/server/operation"
	"github.com/cofferdam/cofferdam/internal/server/problem"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Bounds of an archive. What is beyond is named in its manifest as left out.
const (
	maxPart   = 8 << 30  // bytes of one part
	maxOutput = 64 << 20 // bytes of one command's output
	partTime  = 10 * time.Minute
)

type archive struct {
	Body func(huma.Context)
}

// export puts the archive together before the first byte of it is sent, so that what
// is sent is whole.
func (d *Desk) export(ctx context.Context, in *path) (*archive, error) {
	kept, err := d.kept(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	file, err := d.spool()
	if err != nil {
		return nil, err
	}
	digest, err := d.collect(ctx, kept, file)
	if err == nil {
		err = d.Account.Record(ctx, kept.Task, fmt.Sprintf("sandbox.exported/%s/%d", in.ID, d.Now().UnixNano()), "sandbox.exported", seenBy, map[string]any{
			"sandbox": in.ID, "by": operation.Who(ctx).User, "manifest": digest,
		})
	}
	size := int64(0)
	if err == nil {
		size, err = file.Seek(0, io.SeekEnd)
	}
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(stored(err), file.Close())
	}
	return &archive{func(hc huma.Context) {
		defer file.Close()
		_, w := humago.Unwrap(hc)
		w.Header().Set("Content-Type", "application/x-tar")
		w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
		w.Header().Set("Content-Disposition", `attachment; filename="`+in.ID+`.evidence.tar"`)
		w.WriteHeader(http.StatusOK)
		if _, err := io.Copy(w, file); err != nil {
			panic(http.ErrAbortHandler)
		}
	}}, nil
}

// spool is a file without a name.
func (d *Desk) spool() (*os.File, error) {
	f, err := os.CreateTemp(d.Dir, ".evidence-*")
	if err == nil {
		err = os.Remove(f.Name())
	}
	return f, stored(err)
}

// stored gives an error of the disk its reason.
func stored(err error) error {
	if _, ok := errors.AsType[*task.Failure](err); ok || err == nil {
		return err
	}
	return task.Fail(task.InfraStorage, "the archive can't be put together on the control plane's disk", err)
}

// collect writes everything that can be had. What can't is named, with the reason.
func (d *Desk) collect(ctx context.Context, kept task.FrozenSandbox, to io.Writer) (task.Digest, error) {
	w := evidence.New(to, evidence.Head{
		Origin: d.Account.Origin(), Sandbox: kept.Sandbox, Task: kept.Task, Worker: kept.Worker, FrozenAt: kept.At, FrozenBy: kept.By, Reason: kept.Reason,
		MadeAt: d.Now().UTC().Truncate(time.Second), MadeBy: operation.Who(ctx).User,
	})
	c := &collection{Desk: d, w: w, id: kept.Sandbox}
	err := w.JSON("frozen.json", seenBy, frozenOf(kept))
	if err == nil {
		err = c.task(ctx, kept.Task)
	}
	for _, step := range []func(context.Context) error{c.machine, c.commands, c.egress, c.denials, c.files} {
		if err == nil {
			err = step(ctx)
		}
	}
	if err != nil {
		return "", stored(err)
	}
	w.Leave("memory", "the memory of the sandbox's processes is not taken")
	w.Leave("files elsewhere", "of the sandbox's own layer only /workspace, /home/agent, /tmp and /var/tmp are taken, and of these what its user may read")
	digest, err := w.Close(d.Account.SignEvidence)
	return digest, stored(err)
}

// collection is an archive while it is put together.
type collection struct {
	*Desk
	w  *evidence.Writer
	id string
}

// left names what could not be had. Only what is wrong on our own side is an error.
func (c *collection) left(name string, err error) error {
	c.w.Leave(name, problem.Of(err).Detail)
	c.Log.Warn("evidence is not complete", "sandbox", c.id, "part", name, "error", err.Error())
	return nil
}

// task is what the control plane knows of the task.
func (c *collection) task(ctx context.Context, id string) error {
	if id == "" {
		c.w.Leave("task.json", "the sandbox worked for no task")
		return nil
	}
	t, err := c.Tasks.Task(ctx, id)
	if err != nil {
		return c.left("task.json", err)
	}
	errs := []error{c.w.JSON("task.json", seenBy, t), c.w.JSON("spec.json", seenBy, t.Spec)}
	for _, layer := range []struct{ name, text string }{
		{"operator", t.Layers.Operator}, {"project", t.Layers.Project}, {"repository", t.Layers.Repository}, {"task", t.Spec.Policy},
	} {
		if layer.text != "" {
			errs = append(errs, c.w.Add("policy/"+layer.name+".yaml", seenBy, int64(len(layer.text)), strings.NewReader(layer.text)))
		}
	}
	var receipt []byte
	errs = append(errs, c.part(ctx, "audit.jsonl", seenBy, func(_ context.Context, to io.Writer) (err error) {
		receipt, err = c.Account.Account(ctx, id, to)
		return err
	}))
	if receipt == nil {
		c.w.Leave("receipt.json", "the task has none yet: it has not ended")
	} else {
		errs = append(errs, c.w.Add("receipt.json", seenBy, int64(len(receipt)), bytes.NewReader(receipt)))
	}
	return errors.Join(errs...)
}

// machine is what the worker says of the sandbox.
func (c *collection) machine(ctx context.Context) error {
	_, info, err := c.Places.Info(ctx, c.id)
	if err != nil {
		return c.left("sandbox.json", err)
	}
	return c.w.JSON("sandbox.json", "worker", info)
}

// commands are the commands with their processes and what they wrote.
func (c *collection) commands(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	list, err := c.Finds.Inspect(asking, c.id, "")
	if err != nil {
		if err := c.left("processes.json", err); err != nil {
			return err
		}
		_, info, err := c.Places.Info(ctx, c.id)
		if err != nil {
			return nil
		}
		list = info.Commands
	} else if err := c.w.JSON("processes.json", "guest", list); err != nil {
		return err
	}
	for i, s := range list {
		name := fmt.Sprintf("commands/%04d.out", i)
		if err := c.part(ctx, name, "guest", func(ctx context.Context, to io.Writer) error { return c.output(ctx, s, to) }); err != nil {
			return err
		}
	}
	return nil
}

// output is what a command wrote until now; it may never end.
func (c *collection) output(ctx context.Context, s sandbox.Status, to io.Writer) error {
	if s.Output == 0 {
		return nil
	}
	stream, err := c.Finds.Attach(ctx, c.id, s.ID, 0)
	if err != nil {
		return err
	}
	defer stream.Close()
	most := min(s.Output, maxOutput)
	for n := int64(0); n < most; {
		chunk, err := stream.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := to.Write(chunk.Data[:min(int64(len(chunk.Data)), most-n)]); err != nil {
			return err
		}
		n += int64(len(chunk.Data))
	}
	return nil
}

// egress are the gateway's decisions.
func (c *collection) egress(ctx context.Context) error {
	return c.part(ctx, "egress.jsonl", "gateway", func(ctx context.Context, to io.Writer) error {
		lines := json.NewEncoder(to)
		for after := int64(0); ; {
			page, err := c.Finds.Egress(ctx, c.id, after)
			if err != nil || len(page) == 0 {
				return err
			}
			for _, r := range page {
				if err := lines.Encode(r); err != nil {
					return err
				}
				after = r.Seq
			}
		}
	})
}

// denials are what the sandbox's kernel refused on protected files.
func (c *collection) denials(ctx context.Context) error {
	return c.part(ctx, "denials.jsonl", "worker", func(ctx context.Context, to io.Writer) error {
		lines := json.NewEncoder(to)
		for after := int64(0); ; {
			page, err := c.Finds.Denials(ctx, c.id, after)
			if err != nil || len(page) == 0 {
				return err
			}
			for _, r := range page {
				if err := lines.Encode(r); err != nil {
					return err
				}
				after = r.Seq
			}
		}
	})
}

// files are the folders that the workload writes to, as tar streams of the guest's.
// Nothing here unpacks them.
func (c *collection) files(ctx context.Context) error {
	for _, f := range []struct{ name, path string }{
		{"files/workspace.tar", "/workspace"}, {"files/home.tar", "/home/agent"}, {"files/tmp.tar", "/tmp"}, {"files/var-tmp.tar", "/var/tmp"},
	} {
		err := c.part(ctx, f.name, "guest", func(ctx context.Context, to io.Writer) error {
			from, err := c.Finds.Get(ctx, c.id, f.path, nil)
			if err != nil {
				return err
			}
			defer from.Close()
			defer context.AfterFunc(ctx, func() { _ = from.Close() })()
			_, err = io.Copy(to, from)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// part adds what write writes, once its size is known. What could not be had is
// named; what there was of it until then is not taken for the whole.
func (c *collection) part(ctx context.Context, name, seenBy string, write func(ctx context.Context, to io.Writer) error) error {
	ctx, cancel := context.WithTimeout(ctx, partTime)
	defer cancel()
	file, err := c.spool()
	if err != nil {
		return err
	}
	defer file.Close()
	to := &bounded{to: file, left: maxPart}
	if err := write(ctx, to); err != nil {
		if to.fault != nil {
			return to.fault // our own disk
		}
		return c.left(name, err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return c.w.Add(name, seenBy, maxPart-to.left, file)
}

// bounded is a file that takes so many bytes.
type bounded struct {
	to    io.Writer
	left  int64
	fault error
}

func (b *bounded) Write(p []byte) (int, error) {
	if int64(len(p)) > b.left {
		return 0, task.Fail(task.LimitSize, fmt.Sprintf("it has more than %d bytes", int64(maxPart)), nil)
	}
	n, err := b.to.Write(p)
	b.left -= int64(n)
	if err != nil {
		b.fault = err
	}
	return n, err
}
