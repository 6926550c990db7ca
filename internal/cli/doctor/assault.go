package doctor

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	rooms "github.com/cofferdam/cofferdam/internal/attack"
	"github.com/cofferdam/cofferdam/internal/cli/attack"
)

// assault is what --attack is given.
type assault struct {
	attack, allowUntried bool
	page, only, upstream string
	bin                  string
	port                 int
	within               time.Duration
}

func (o *assault) flags(f *pflag.FlagSet) {
	f.BoolVar(&o.attack, "attack", false, "try from inside of sandboxes what must not work")
	f.StringVar(&o.page, "page", "", "with --attack: file to write the report to as one HTML page")
	f.StringVar(&o.only, "only", "", "with --attack: only the checks whose ids begin like this, such as egress.")
	f.StringVar(&o.upstream, "upstream", "", "with --attack: NAME:PORT of a server with TLS outside, for the checks of names that disagree")
	f.IntVar(&o.port, "canary-port", 0, "with --attack: port of the listeners that nothing inside may reach (default: a free one)")
	f.StringVar(&o.bin, "bin", "", "with --attack: folder of the programs that the platform apart is made of (default: that of this one)")
	f.DurationVar(&o.within, "within", 0, "with --attack: how long checks are tried; those that were not by then are untried (default 1m45s)")
	f.BoolVar(&o.allowUntried, "allow-untried", false, "with --attack: checks that could not be tried don't change the exit code")
}

// check says whether the flags fit together.
func (o *assault) check(h Host) error {
	if o.within < 0 {
		return h.Usage("--within: must not be negative")
	}
	if o.attack {
		return nil
	}
	for flag, given := range map[string]bool{"--page": o.page != "", "--only": o.only != "", "--upstream": o.upstream != "", "--canary-port": o.port != 0, "--allow-untried": o.allowUntried, "--bin": o.bin != "", "--within": o.within != 0} {
		if given {
			return h.Usage("%s: needs --attack", flag)
		}
	}
	return nil
}

func (o *assault) run(ctx context.Context, h Host) error {
	var rep rooms.Report
	var progress io.Writer
	if !h.JSON() {
		progress = h.Err
	}
	err := h.Ask(ctx, func(ctx context.Context, c *client.Client) (err error) {
		rep, err = attack.Run(ctx, c, attack.Options{Only: o.only, Port: o.port, Upstream: o.upstream, URL: h.URL(), Bin: o.bin, Within: o.within, Progress: progress})
		return err
	})
	if len(rep.Checks) == 0 {
		return err
	}
	// What could not be removed is told beside the report.
	if o.page != "" {
		err = errors.Join(err, o.write(rep))
	}
	if h.JSON() {
		err = errors.Join(err, h.Print(rep))
	} else {
		err = errors.Join(err, attack.List(h.Out, rep))
	}
	if err == nil && (rep.Fell > 0 || rep.Held == 0 || rep.Cut || rep.Untried > 0 && !o.allowUntried) {
		return h.Failed(api.ExitCode("infra.internal"))
	}
	return err
}

func (o *assault) write(rep rooms.Report) error {
	f, err := os.Create(o.page)
	if err != nil {
		return err
	}
	return errors.Join(attack.Page(f, rep), f.Close())
}
