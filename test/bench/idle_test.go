//go:build bench

package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/api"
)

// idle measures the memory of a sandbox that does nothing, all its processes.
func (b *bench) idle() []row {
	_, ids := b.rest(50, 1)
	defer b.remove(ids)
	return []row{{"idle sandbox, PSS of all its processes (mean of 50 alive)", fmt.Sprintf("%.1f MiB", b.memory(ids)), "–", "–", "≤ 20 MiB"}}
}

// idle500 measures five hundred that do nothing, against fifty of them: what
// each takes, how long the last ones take to be made, and a command in one of
// them.
func (b *bench) idle500() []row {
	const few, all = 50, 500
	first, ids := b.rest(few, 4)
	fewMemory, fewExec := b.memory(ids), b.echoes(ids)
	rest, more := b.rest(all-few, 4)
	ids = append(ids, more...)
	defer b.remove(ids)
	memory, echoes := b.memory(ids), b.echoes(ids)
	// Of the last ones, since each create may cost more than the one before it.
	last := rest[len(rest)-few:]
	b.t.Logf("daemons with %d sandboxes: %s", all, b.daemons())
	return []row{
		{"500 idle sandboxes, PSS of all processes of one (mean), against 50", fmt.Sprintf("%.1f MiB", memory), fmt.Sprintf("%.1f MiB", fewMemory), fmt.Sprintf("%.2f ×", memory/fewMemory), "≤ 20 MiB"},
		{"create → first output, four at once, sandboxes 451–500 against 1–50", last.String(), first.String(), ratio(last, first), "–"},
		{"exec round trip while 500 exist against 50", echoes.String(), fewExec.String(), ratio(echoes, fewExec), "–"},
	}
}

// rest makes n sandboxes, some at once, runs something in each and lets them
// be.
func (b *bench) rest(n, at int) (figure, []string) {
	var wg sync.WaitGroup
	took, ids, next := make(figure, n), make([]string, n), make(chan int)
	for range at {
		wg.Go(func() {
			for i := range next {
				start := time.Now()
				box, err := b.e.Client.CreateSandbox(b.ctx, api.SandboxRequest{})
				if err != nil {
					b.t.Errorf("sandbox %d of %d: %v", i, n, err)
					continue
				}
				ids[i] = box.ID
				b.echo(box.ID)
				took[i] = time.Since(start)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	if b.t.Failed() {
		b.remove(ids)
		b.t.FailNow()
	}
	<-time.After(3 * time.Second) // idle is what has done nothing for a while
	return took, ids
}

// echoes runs a command in a hundred of the sandboxes, one after the other.
func (b *bench) echoes(ids []string) figure {
	var f figure
	for i := range 100 {
		start := time.Now()
		b.echo(ids[i*len(ids)/100])
		f = append(f, time.Since(start))
	}
	return f
}

// memory is what one of the sandboxes takes, in MiB.
func (b *bench) memory(ids []string) float64 {
	known := map[string]bool{}
	for _, id := range ids {
		known[id] = true
	}
	var total float64
	for _, p := range b.e.Processes() {
		for word := range strings.FieldsFuncSeq(p.Args, func(r rune) bool { return strings.ContainsRune(" /=", r) }) {
			if known[word] {
				total += pss(p.PID)
				break
			}
		}
	}
	return total / float64(len(ids))
}

// daemons says what each daemon holds.
func (b *bench) daemons() string {
	var line strings.Builder
	for _, p := range b.e.Processes() {
		if strings.HasPrefix(p.Name, "cofferdam") {
			open, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID))
			fmt.Fprintf(&line, "%s %.1f MiB, %d descriptors; ", p.Name, alone(p.PID), len(open))
		}
	}
	return line.String()
}

func (b *bench) remove(ids []string) {
	for _, id := range ids {
		if id != "" {
			b.must(b.e.Client.RemoveSandbox(b.ctx, id))
		}
	}
}

// pss returns a process's proportional set size in MiB, children included.
func pss(pid int) float64 {
	mib := alone(pid)
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range tasks {
		children, _ := os.ReadFile(file)
		for c := range strings.FieldsSeq(string(children)) {
			if child, err := strconv.Atoi(c); err == nil && !named(child) {
				mib += pss(child)
			}
		}
	}
	return mib
}

// alone is the proportional set size of one process in MiB.
func alone(pid int) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "Pss:" {
			kib, _ := strconv.ParseFloat(f[1], 64)
			return kib / 1024
		}
	}
	return 0
}

// named says whether a child is counted by its own arguments already.
func named(pid int) bool {
	args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return bytes.Contains(args, []byte("runsc"))
}
