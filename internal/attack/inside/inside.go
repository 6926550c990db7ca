// Package inside is the program that tries the checks of attack from within a
// sandbox. It says what came of each as a line of JSON, and each check has a
// process of its own, so that one which ends its process ends only itself.
//
// It does no harm where a defence fell: it connects, reads and says so, and what it
// writes has the canary's name.
package inside

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/attack"
)

const (
	patience = 25 * time.Second // of one check
	wait     = 4 * time.Second  // of one connection
	abreast  = 6
)

// verdict is what came of one check. The zero verdict is untried.
type verdict struct{ outcome, happened string }

func held(format string, args ...any) verdict {
	return verdict{attack.Held, fmt.Sprintf(format, args...)}
}

func fell(format string, args ...any) verdict {
	return verdict{attack.Fell, fmt.Sprintf(format, args...)}
}

func untried(format string, args ...any) verdict {
	return verdict{attack.Untried, fmt.Sprintf(format, args...)}
}

// try is one check that is under way.
type try struct {
	plan attack.Plan
	id   string
}

// attempts are all that can be tried.
func attempts() map[string]func(*try) verdict {
	all := map[string]func(*try) verdict{}
	for _, some := range []map[string]func(*try) verdict{network(), names(), addresses(), kernel(), kernelFiles(), secrets(), limits(), crowds(), lent(), smuggling(), protections()} {
		for id, f := range some {
			all[id] = f
		}
	}
	return all
}

// IDs are those of the checks that can be tried.
func IDs() []string {
	var ids []string
	for id := range attempts() {
		ids = append(ids, id)
	}
	return ids
}

// One tries one check in this process.
func One(plan attack.Plan, id string, out io.Writer) error {
	f, ok := attempts()[id]
	if !ok {
		return say(out, id, untried("this program doesn't know it"))
	}
	return say(out, id, f(&try{plan: plan, id: id}))
}

func say(out io.Writer, id string, v verdict) error {
	if v.outcome == "" {
		v.outcome = attack.Untried
	}
	line, err := json.Marshal(attack.Saying{ID: id, Outcome: v.outcome, Happened: attack.Brief(v.happened)})
	if err != nil {
		return err
	}
	_, err = out.Write(append(line, '\n'))
	return err
}

// All tries the plan's checks, each in a process started by argv and its id.
func All(ctx context.Context, plan attack.Plan, argv []string, out io.Writer) error {
	var mu sync.Mutex
	var group sync.WaitGroup
	var failed error
	if plan.Abreast <= 0 {
		plan.Abreast = abreast
	}
	slots := make(chan struct{}, plan.Abreast)
	for _, id := range plan.IDs {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			line, err := apart(ctx, argv, id)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				_, err = out.Write(line)
			}
			failed = errors.Join(failed, err)
		})
	}
	group.Wait()
	return failed
}

// apart tries one check in a process of its own. One that doesn't come back has
// not been tried to its end.
func apart(ctx context.Context, argv []string, id string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], append(append([]string{}, argv[1:]...), id)...)
	cmd.WaitDelay = time.Second
	said, err := cmd.Output()
	if line, _, whole := strings.Cut(string(said), "\n"); whole {
		return []byte(line + "\n"), nil
	}
	var b strings.Builder
	werr := say(&b, id, untried("its process said nothing: %v", err))
	return []byte(b.String()), werr
}

// ReadPlan reads a plan from a file.
func ReadPlan(file string) (attack.Plan, error) {
	var p attack.Plan
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err == nil && len(p.Nonce) < 16 {
		err = errors.New("its nonce is too short")
	}
	if err != nil {
		return attack.Plan{}, fmt.Errorf("plan %s: %w", file, err)
	}
	return p, nil
}

// Listen is the neighbour: whoever reaches it is told so, until the context ends.
func Listen(ctx context.Context, plan attack.Plan) error {
	var listeners []net.Listener
	for _, at := range [][2]string{{"tcp", fmt.Sprintf(":%d", plan.Next)}, {"unix", "@next-" + plan.Nonce}} {
		l, err := net.Listen(at[0], at[1])
		if err != nil {
			return fmt.Errorf("the neighbour: %w", err)
		}
		listeners = append(listeners, l)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(c, "the neighbour "+plan.Nonce)
				c.Close()
			}
		}()
	}
	<-ctx.Done()
	for _, l := range listeners {
		l.Close()
	}
	return nil
}

// Await waits until the neighbour listens; it runs beside it.
func Await(ctx context.Context, plan attack.Plan) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", plan.Next))
		if err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the neighbour does not listen: %w", err)
		case <-tick.C:
		}
	}
}
