// Package credentials is the part of the server that speaks of credentials: who
// may see, add and end which, and which gateway is lent what. It translates
// between the API and the vault and holds no value longer than a request.
package credentials

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/cofferdam/cofferdam/internal/identity/pace"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/identity"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Vault keeps credentials. Implemented by credential. Errors are *task.Failure;
// a name that is not there gives task.InputNotFound.
type Vault interface {
	Add(ctx context.Context, r task.CredentialRequest, by string) (task.Credential, error)
	Get(ctx context.Context, name string) (task.Credential, error)
	List(ctx context.Context) ([]task.Credential, error)
	// Revoke wipes the value and ends the leases, which it returns.
	Revoke(ctx context.Context, name, by string, remove bool) (task.Credential, []task.Lent, error)
}

// Leases is what is lent. Implemented by credential.
type Leases interface {
	Check(ctx context.Context, requester string, rules map[task.StageName][]task.Rule) error
	Of(ctx context.Context, taskID string) ([]task.Lent, error)
	End(ctx context.Context, taskID, sandbox, why string) error
	Value(ctx context.Context, sandbox, lease string) (task.Given, error)
}

// Machines knows where sandboxes are. Implemented by fleet.
type Machines interface {
	// Holds says whether the sandbox is on a worker of the subject.
	Holds(ctx context.Context, sandbox, subject string) (bool, error)
}

// Grants takes leases that ended out of the grants of their sandboxes.
// Implemented by stage/steps.
type Grants interface {
	Withdraw(ctx context.Context, ended []task.Lent) error
}

// Options make a Desk. All are required.
type Options struct {
	Vault    Vault
	Leases   Leases
	Machines Machines
	Grants   Grants
	Life     time.Duration // how long a gateway may keep a value
	Now      func() time.Time
	Log      *slog.Logger
}

// Desk answers for credentials. It is safe for concurrent use.
type Desk struct {
	Options
	// A machine has some hundred sandboxes, each with a few leases, and asks for
	// each about once a minute.
	pace *pace.Pace
}

// New returns a desk.
func New(o Options) (*Desk, error) {
	if o.Vault == nil || o.Leases == nil || o.Machines == nil || o.Grants == nil || o.Life < time.Second || o.Now == nil || o.Log == nil {
		return nil, errors.New("credentials: an option is missing")
	}
	return &Desk{Options: o, pace: &pace.Pace{Rate: 50, Burst: askBurst, Most: 4096}}, nil
}

// askBurst is how many values a gateway may ask for at once.
const askBurst = 200

// cutLimit bounds how long a revocation waits for machines. What they hold
// ends by itself after Options.Life.
const cutLimit = 10 * time.Second

// Add puts a credential into the vault for who asks, or for the owner it names.
// Only administrators come here.
func (d *Desk) Add(ctx context.Context, who identity.Principal, r api.CredentialRequest) (api.Credential, error) {
	owner := r.Owner
	if owner == "" {
		owner = who.User
	}
	c, err := d.Vault.Add(ctx, task.CredentialRequest{
		Name: r.Name, Owner: owner, Shared: r.Shared, Provider: r.Provider, Header: r.Header, Prefix: r.Prefix,
		Hosts: r.Hosts, Ports: r.Ports, Methods: r.Methods, Paths: r.Paths, Env: r.Env, Kind: r.Kind, Settings: r.Settings, Value: task.NewSecret(r.Value),
	}, who.User)
	if err != nil {
		return api.Credential{}, err
	}
	return wire(c), nil
}

// List gives what the principal may see: an administrator everything, a user
// the own ones and those that are shared.
func (d *Desk) List(ctx context.Context, who identity.Principal) (api.CredentialList, error) {
	all, err := d.Vault.List(ctx)
	if err != nil {
		return api.CredentialList{}, err
	}
	out := api.CredentialList{Credentials: []api.Credential{}}
	for _, c := range all {
		if sees(who, c) {
			out.Credentials = append(out.Credentials, wire(c))
		}
	}
	return out, nil
}

func sees(who identity.Principal, c task.Credential) bool {
	return who.May(c.Owner) || who.Role == identity.User && c.Shared
}

// End revokes a credential, or removes it. Its leases end at once and the
// connections made under them are cut, as far as their machines answer.
func (d *Desk) End(ctx context.Context, who identity.Principal, name string, remove bool) (api.CredentialEnd, error) {
	none := task.Fail(task.InputNotFound, fmt.Sprintf("no credential %.64q", name), nil)
	c, err := d.Vault.Get(ctx, name)
	if task.ReasonOf(err) == task.InputNotFound {
		return api.CredentialEnd{}, none
	}
	if err != nil {
		return api.CredentialEnd{}, err
	}
	if !who.May(c.Owner) {
		if !sees(who, c) {
			return api.CredentialEnd{}, none
		}
		return api.CredentialEnd{}, task.Fail(task.PolicyDenied, fmt.Sprintf("credential %q belongs to %s; only its owner or an administrator may end it", name, c.Owner), nil)
	}
	c, ended, err := d.Vault.Revoke(ctx, name, who.User, remove)
	if err != nil {
		return api.CredentialEnd{}, err
	}
	return api.CredentialEnd{Credential: wire(c), Leases: len(ended), Cut: d.cut(ctx, ended)}, nil
}

// cut has the connections of ended leases cut and says whether all were.
func (d *Desk) cut(ctx context.Context, ended []task.Lent) bool {
	if len(ended) == 0 {
		return true
	}
	// A client that went away does not stop it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cutLimit)
	defer cancel()
	if err := d.Grants.Withdraw(ctx, ended); err != nil {
		d.Log.WarnContext(ctx, "leases ended, and a machine was not told; what it holds ends by itself", "leases", len(ended), "error", err.Error())
		return false
	}
	return true
}

// EndTask ends what a task was lent, since it is being cancelled.
func (d *Desk) EndTask(ctx context.Context, taskID string) error {
	before, err := d.Leases.Of(ctx, taskID)
	if err != nil {
		return err
	}
	active := slices.DeleteFunc(before, func(l task.Lent) bool { return !l.Active() })
	if len(active) == 0 {
		return nil
	}
	if err := d.Leases.End(ctx, taskID, "", task.EndedCancelled); err != nil {
		return err
	}
	d.cut(ctx, active)
	return nil
}

// Check says whether the requester's stages can be lent what the rules name.
func (d *Desk) Check(ctx context.Context, requester string, rules map[task.StageName][]task.Rule) error {
	return d.Leases.Check(ctx, requester, rules)
}

// Of gives the leases that a task was ever lent. Who may see the task is asked
// before.
func (d *Desk) Of(ctx context.Context, taskID string) ([]api.Lease, error) {
	list, err := d.Leases.Of(ctx, taskID)
	if err != nil {
		return nil, err
	}
	out := make([]api.Lease, 0, len(list))
	for _, l := range list {
		out = append(out, api.Lease{
			ID: l.ID, Credential: l.Credential, Kind: l.Kind, Settings: l.Settings, Header: l.Header, Hosts: some(l.Hosts), Ports: some(l.Ports),
			Methods: some(l.Methods), Paths: some(l.Paths), Stage: string(l.Stage), Attempt: l.Attempt, Sandbox: l.Sandbox,
			From: l.From, Until: l.Until, Ended: l.Ended,
		})
	}
	return out, nil
}

// Lend gives a gateway the value of a lease. The lease must be active in that
// sandbox, and the sandbox on the gateway's own machine; whatever is not so, the
// refusal is the same.
func (d *Desk) Lend(ctx context.Context, who identity.Principal, r api.LendRequest) (api.LendAnswer, error) {
	if who.Role != identity.Gateway || who.User == "" {
		return api.LendAnswer{}, task.Fail(task.PolicyDenied, "only a gateway is lent values", nil)
	}
	if !d.pace.May(who.Token, d.Now()) {
		return api.LendAnswer{}, task.Fail(task.LimitRequests, "this gateway asks too often; ask again in a second", nil)
	}
	refused := task.Fail(task.PolicyCredential, "this lease is not lent to this sandbox, or it has ended", nil)
	looking, cancel := context.WithTimeout(ctx, cutLimit)
	defer cancel()
	holds, err := d.Machines.Holds(looking, r.Sandbox, who.User)
	switch why := task.ReasonOf(err); {
	case why == task.InputNotFound || why == task.InputInvalid || err == nil && !holds:
		d.Log.WarnContext(ctx, "a gateway asked for a lease of a sandbox that is not on its machine", "sandbox", fmt.Sprintf("%.64q", r.Sandbox), "gateway", who.User)
		return api.LendAnswer{}, refused
	case err != nil:
		return api.LendAnswer{}, task.Fail(task.InfraControlAway, "which machine has the sandbox can't be known at this moment", err)
	}
	given, err := d.Leases.Value(ctx, r.Sandbox, r.Lease)
	if err != nil {
		return api.LendAnswer{}, told(err)
	}
	if given.Once {
		return api.LendAnswer{Value: given.Value.Reveal(), ExpiresAt: d.Now().UTC(), Once: true}, nil
	}
	keep := min(given.Keep, d.Life)
	return api.LendAnswer{Value: given.Value.Reveal(), ExpiresAt: d.Now().Add(keep).UTC(), Seconds: int(keep / time.Second)}, nil
}

// told leaves of a failure to lend what may be told inside: that is where the
// gateway's answer goes.
func told(err error) error {
	if f, ok := errors.AsType[*task.Failure](err); ok {
		return task.Fail(f.Reason, f.Inside, err)
	}
	return err
}

func wire(c task.Credential) api.Credential {
	return api.Credential{
		Name: c.Name, Owner: c.Owner, Shared: c.Shared, Kind: c.Kind, Settings: c.Settings, Header: c.Header, Prefix: c.Prefix,
		Hosts: some(c.Hosts), Ports: some(c.Ports), Methods: some(c.Methods), Paths: some(c.Paths), Env: c.Env,
		Created: c.Created, LastUsed: c.LastUsed, Revoked: c.Revoked,
	}
}

func some[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// NoneFor refuses rules that lend to a sandbox without a task: leases belong to
// the stages of tasks.
func NoneFor(rules []task.Rule) error {
	for _, r := range rules {
		if r.Credential != "" {
			return task.Fail(task.InputPolicy, r.ID+".credential: credentials are lent to the stages of tasks; a sandbox without a task gets none", nil)
		}
	}
	return nil
}
