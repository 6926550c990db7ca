// Package credentials has the commands about credentials: add, ls, rm and
// revoke. A value is read from a file, from the standard input or from a
// terminal that does not echo it; it is never an argument, and no command
// prints it.
package credentials

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/cli/host"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

// Host is what the commands are part of.
type Host struct {
	host.Host
}

// Commands returns the commands.
func Commands(h Host) []*cobra.Command {
	return []*cobra.Command{h.add(), h.ls(), h.end("revoke", "Wipe a credential's value and end what is lent of it, at once", false), h.end("rm", "Revoke a credential and forget it, so that its name is free", true)}
}

func (h Host) add() *cobra.Command {
	var req api.CredentialRequest
	var settings []string
	var ports []int
	var file, dir string
	cmd := &cobra.Command{
		Use: "add NAME", Short: "Put a credential into the vault", Args: cobra.ExactArgs(1),
		Long: `Put a credential into the vault of the installation. Its value is read from the
standard input, from a file, or asked for on the terminal; it is never an argument.
Policies name it, as in "credential: NAME" at a rule; stages that such a rule lends
it to see a placeholder in its place, and the gateway puts the value into the header
of requests to the hosts, ports, methods and paths that it is bound to, and no others.`,
		Example: `  cofferdam credential add anthropic --provider anthropic --shared < key.txt
  cofferdam credential add registry --host npm.example.com --path '/**' --method GET --env NPM_TOKEN --from-file token
  cofferdam credential add my-claude --kind claude-login --dir ~/.claude`,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Name = args[0]
			for _, p := range ports {
				if p < 1 || p > 65535 {
					return host.Invalid("--port %d: must be 1 to 65535", p)
				}
				req.Ports = append(req.Ports, uint16(p))
			}
			if len(req.Hosts) == 0 && req.Provider == "" && !isLogin(req.Kind) {
				return host.Invalid("--host: a credential must be bound to the hosts it is for; give --host, or --provider")
			}
			for _, text := range settings {
				name, value, ok := strings.Cut(text, "=")
				if _, twice := req.Settings[name]; !ok || name == "" || twice {
					return host.Invalid("--set %q: must be NAME=TEXT, each name once", text)
				}
				if req.Settings == nil {
					req.Settings = map[string]string{}
				}
				req.Settings[name] = value
			}
			return h.Ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				var err error
				if !minted(req.Kind, req.Settings) && dir == "" {
					if req.Value, err = h.value(ctx, file); err != nil {
						return err
					}
				}
				if err := setLogin(&req, dir); err != nil {
					return err
				}
				made, err := c.AddCredential(ctx, req)
				if err != nil {
					return err
				}
				if h.JSON() {
					return h.Print(made)
				}
				fmt.Fprintf(h.Out, "credential %s: %s to %s\n", show.Line(made.Name), show.Line(carrying(made)), show.Line(binding(made)))
				return nil
			})
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&req.Hosts, "host", nil, "`host` it may be sent to, or a pattern such as *.example.com; may be repeated")
	f.IntSliceVar(&ports, "port", nil, "`port` it may be sent to; may be repeated (default 443)")
	f.StringArrayVar(&req.Methods, "method", nil, "`method` of requests that may carry it; may be repeated (default any)")
	f.StringArrayVar(&req.Paths, "path", nil, "`path` of requests that may carry it, \"*\" for one segment, a last \"**\" for any rest; may be repeated (default any)")
	f.StringVar(&req.Header, "header", "", "`header` that carries it (default Authorization)")
	f.StringVar(&req.Prefix, "prefix", "", "`text` before the value in the header (default \"Bearer \" where the header is not given)")
	f.StringVar(&req.Kind, "kind", "", "`kind`: how requests carry it, or how it is made (default header; docs/credentials.md lists them)")
	f.StringArrayVar(&settings, "set", nil, "`name=text` of a setting that the kind needs; may be repeated")
	f.StringVar(&req.Env, "env", "", "`variable` that gets the placeholder in the stages it is lent to (default none)")
	f.StringVar(&req.Provider, "provider", "", "vendor of models whose key it is: anthropic, openai or google; fills the rest")
	f.StringVar(&req.Owner, "owner", "", "`user` whose tasks may use it (default you)")
	f.BoolVar(&req.Shared, "shared", false, "everyone's tasks may use it")
	f.StringVar(&dir, "dir", "", "`folder` on the control plane's machine that a login is kept in by its own tool, such as ~/.claude")
	f.StringVar(&file, "from-file", "", "`file` with the value (default the standard input)")
	return cmd
}

// minted says whether a kind of credential is made from nothing but who the run
// is, so that there is no value to read: of an exchange where no client is named.
func minted(kind string, settings map[string]string) bool {
	return kind == "oidc" || kind == "aws-web-identity" || settings["dir"] != "" || kind == "token-exchange" && settings["client_id"] == ""
}

// carrying says how requests carry a credential.
func carrying(c api.Credential) string {
	if c.Kind == "header" {
		return c.Header
	}
	return c.Kind
}

func (h Host) ls() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the credentials that you may see", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return host.List(cmd.Context(), h.Host, (*client.Client).Credentials, func(list []api.Credential) any { return api.CredentialList{Credentials: list} },
				[]string{"CREDENTIAL", "OWNER", "STATE", "KIND", "BOUND TO", "VARIABLE", "AGE", "USED"}, func(c api.Credential) []string {
					return []string{c.Name, c.Owner, state(c), carrying(c), binding(c), c.Env, age(&c.Created), age(c.LastUsed)}
				})
		},
	}
}

func (h Host) end(verb, short string, remove bool) *cobra.Command {
	var everything, keys bool
	cmd := &cobra.Command{
		Use: verb + " NAME", Short: short, Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if everything || keys {
				return h.everything(cmd, args, everything, keys)
			}
			if len(args) != 1 {
				return host.Invalid("give the name of one credential")
			}
			return h.Ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				ask := c.RevokeCredential
				if remove {
					ask = c.RemoveCredential
				}
				end, err := ask(ctx, args[0])
				if err != nil {
					return err
				}
				if h.JSON() {
					return h.Print(end)
				}
				done := "revoked"
				if remove {
					done = "removed"
				}
				fmt.Fprintf(h.Out, "credential %s: %s; %d leases ended\n", show.Line(end.Credential.Name), done, end.Leases)
				if !end.Cut {
					fmt.Fprintln(h.Err, "cofferdam: a machine did not answer; what it was lent ends within a minute")
				}
				return nil
			})
		},
	}
	if !remove {
		cmd.Flags().BoolVar(&everything, "all", false, "revoke every credential and end everything that is lent, in place of one NAME; administrators only")
		cmd.Flags().BoolVar(&keys, "keys", false, "with --all: make the key of the runs' tokens new as well, at once")
	}
	return cmd
}

func state(c api.Credential) string {
	switch {
	case c.Revoked != nil:
		return "revoked"
	case c.Shared:
		return "shared"
	}
	return "own"
}

// binding says in short what a credential may be sent to.
func binding(c api.Credential) string {
	ports := make([]string, 0, len(c.Ports))
	for _, p := range c.Ports {
		ports = append(ports, strconv.Itoa(int(p)))
	}
	s := strings.Join(c.Hosts, ",") + ":" + strings.Join(ports, ",")
	if len(c.Methods) > 0 {
		s = strings.Join(c.Methods, ",") + " " + s
	}
	return s + strings.Join(c.Paths, ",")
}

func age(t *time.Time) string {
	if t == nil {
		return "never"
	}
	return show.Span(time.Since(*t))
}
