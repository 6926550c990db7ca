package cli

import (
	"context"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

type sandboxCreateOptions struct {
	id, policyFile             string
	memory, cpus, disk, output string
	pids                       int64
	timeout, expire            time.Duration
	json                       bool
}

func (a *app) sandboxCreateCmd() *cobra.Command {
	var o sandboxCreateOptions
	cmd := &cobra.Command{
		Use: "create", Short: "Make a sandbox and print its id", Args: cobra.NoArgs,
		Long: `Make a sandbox and print its id. Without a policy it has no network at all; with one,
its agent stage says what is reachable. It is destroyed by "sandbox rm", or when it
expires.`,
		Example: `  id=$(cofferdam sandbox create --memory 512m --cpus 1)
  cofferdam sandbox exec $id -- uname -a`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.json = a.json
			req, err := o.request(a.In)
			if err != nil {
				return err
			}
			return a.stay(cmd.Context(), func(ctx context.Context, c *client.Client) error { return sandboxCreate(ctx, c, req, o.json, a.Out) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.id, "id", "", "an id of your own; the same again makes no second sandbox")
	f.StringVar(&o.policyFile, "policy", "", "file that says what the sandbox may reach")
	f.StringVar(&o.memory, "memory", "", "limit, such as 512m or 4g")
	f.StringVar(&o.cpus, "cpus", "", "limit, such as 1.5")
	f.StringVar(&o.disk, "disk", "", "limit of what may be written, such as 10g")
	f.StringVar(&o.output, "output", "", "limit of one command's output, such as 1g")
	f.Int64Var(&o.pids, "pids", 0, "limit of processes")
	f.DurationVar(&o.timeout, "timeout", 0, "limit of one command's time, such as 10m")
	f.DurationVar(&o.expire, "expire", 0, "destroy it after this time (default 24h)")
	return cmd
}

// request checks the options and makes the request of them.
func (o sandboxCreateOptions) request(in io.Reader) (api.SandboxRequest, error) {
	var none api.SandboxRequest
	if o.id != "" && !sandboxID.MatchString(o.id) {
		return none, usage("--id %s: must be sb- and 16 of the characters a-z and 2-7", o.id)
	}
	if o.pids < 0 || o.timeout < 0 || o.expire < 0 {
		return none, usage("--pids, --timeout and --expire: must not be negative")
	}
	policy, err := readPolicy(o.policyFile, in)
	if err != nil {
		return none, err
	}
	limits := api.Limits{PIDs: o.pids, TimeSeconds: o.timeout.Seconds()}
	for _, f := range []struct {
		flag, text string
		to         *int64
	}{{"--memory", o.memory, &limits.Memory}, {"--disk", o.disk, &limits.Disk}, {"--output", o.output, &limits.Output}} {
		if *f.to, err = parseSize(f.flag, f.text); err != nil {
			return none, err
		}
	}
	if limits.MilliCPU, err = parseCPUs(o.cpus); err != nil {
		return none, err
	}
	req := api.SandboxRequest{ID: o.id, Policy: policy, ExpireSeconds: int64(math.Ceil(o.expire.Seconds()))}
	if limits != (api.Limits{}) {
		req.Limits = &limits
	}
	return req, nil
}

func sandboxCreate(ctx context.Context, c *client.Client, req api.SandboxRequest, asJSON bool, out io.Writer) error {
	s, err := c.CreateSandbox(ctx, req)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(out, s)
	}
	_, err = fmt.Fprintln(out, show.Line(s.ID))
	return err
}

// parseSize reads a number of bytes: 1k is 1024. Empty is 0.
func parseSize(flag, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	number := strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(text), "b"), "i")
	shift := 0
	for i, unit := range []string{"k", "m", "g", "t"} {
		if n, ok := strings.CutSuffix(number, unit); ok {
			number, shift = n, 10*(i+1)
			break
		}
	}
	f, err := strconv.ParseFloat(number, 64)
	bytes := f * float64(int64(1)<<shift)
	if err != nil || !(bytes >= 1) || bytes > 1<<60 {
		return 0, usage("%s %s: not a size, such as 512m or 4g", flag, text)
	}
	return int64(bytes), nil
}

func parseCPUs(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f >= 0.001) || f > 1e6 {
		return 0, usage("--cpus %s: not a number of processors, such as 1.5", text)
	}
	return int64(math.Round(f * 1000)), nil
}
