package inside

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cofferdam/cofferdam/internal/attack"
)

func crowds() map[string]func(*try) verdict {
	return map[string]func(*try) verdict{
		"limits.connections": (*try).connections,
		"limits.names":       (*try).manyNames,
		"limits.refusals":    (*try).refusals,
		"limits.half-open":   (*try).halfOpen,
		"limits.big-header":  (*try).bigHeader,
	}
}

// ended says whether the other side ended the connection; that nothing came in
// time is no end.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// passes says whether an allowed request is answered now, or soon: what the
// attack used up is given back when its connections have ended.
func (t *try) passes() error {
	var answer string
	var err error
	for end := time.Now().Add(3 * wait); time.Now().Before(end); {
		answer, err = request{name: attack.FarName, port: t.plan.Far.Plain, path: "/open/fine"}.send()
		if strings.Contains(answer, t.marker()) {
			return nil
		}
	}
	return fmt.Errorf("an allowed request is not answered any more: %.200q, %w", answer, err)
}

// Reach asks the server that this sandbox may reach.
func Reach(plan attack.Plan) error { return (&try{plan: plan}).passes() }

func (t *try) after(v verdict) verdict {
	if err := t.passes(); err != nil && v.outcome == attack.Held {
		return fell("%s; then %v", v.happened, err)
	}
	return v
}

// connections opens more than are allowed, and holds them.
func (t *try) connections() verdict {
	if err := t.passes(); err != nil {
		return untried("%v", err)
	}
	var all []net.Conn
	var refused error
	for range t.plan.Far.Most + 5 {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(attack.FarName, strconv.Itoa(t.plan.Far.Plain)), wait)
		if err != nil {
			refused = err
			break
		}
		all = append(all, c)
	}
	for _, c := range all {
		c.Close()
	}
	if refused == nil {
		return fell("%d connections were open at once, where %d are allowed", len(all), t.plan.Far.Most)
	}
	return t.after(held("the connection after %d others: %v", len(all), refused))
}

// names asks for more than are allowed.
func (t *try) manyNames() verdict {
	if err := t.passes(); err != nil {
		return untried("%v", err)
	}
	got := 0
	for i := range t.plan.Far.Names + 20 {
		if _, err := net.LookupHost(fmt.Sprintf("n%d.%s", i, t.random())); err == nil {
			got++
		}
	}
	if got >= t.plan.Far.Names+20 {
		return fell("%d names got an address, where %d are allowed", got, t.plan.Far.Names)
	}
	return t.after(held("%d of %d names got no address", t.plan.Far.Names+20-got, t.plan.Far.Names+20))
}

// refusals makes many connections that are refused.
func (t *try) refusals() verdict {
	if err := t.passes(); err != nil {
		return untried("%v", err)
	}
	all := make([]int, 1000)
	v := each(all, func(int) verdict {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(nobody, "80"), wait)
		if err != nil {
			return held("%v", err)
		}
		defer c.Close()
		return t.talk(c, nobody, t.request(nobody))
	})
	return t.after(v)
}

// halfOpen opens what it may and says nothing.
func (t *try) halfOpen() verdict {
	if err := t.passes(); err != nil {
		return untried("%v", err)
	}
	var all []net.Conn
	for range t.plan.Far.Most {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(attack.FarName, strconv.Itoa(t.plan.Far.Bound)), wait)
		if err != nil {
			break
		}
		_, _ = c.Write([]byte{0x16, 3, 1}) // a ClientHello that never goes on
		all = append(all, c)
	}
	for _, c := range all {
		c.Close()
	}
	if len(all) == 0 {
		return untried("no connection came about")
	}
	return t.after(held("%d connections that said three bytes took nothing from those after them", len(all)))
}

// bigHeader must be refused before it is whole.
func (t *try) bigHeader() verdict {
	c, err := open(attack.FarName, t.plan.Far.Plain, clear1)
	if err != nil {
		return untried("%v", err)
	}
	defer c.Close()
	_, _ = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n", t.no("/open"), net.JoinHostPort(attack.FarName, strconv.Itoa(t.plan.Far.Plain)))
	line := "X-A: " + strings.Repeat("a", 8000) + "\r\n"
	for range 1000 {
		if _, err = io.WriteString(c, line); err != nil {
			break
		}
	}
	answer, rerr := hear(c, "\r\n", nil)
	if strings.Contains(answer, t.marker()) {
		return fell("a header of 8 MiB arrived")
	}
	if err == nil && !ended(rerr) && answer == "" {
		return untried("it was taken, and nothing was said: %v", rerr)
	}
	return t.after(held("%.80q, %v", answer, errors.Join(err, rerr)))
}
