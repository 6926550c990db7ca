package credential

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/internal/credential/known"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Life is how long a value that was lent may be kept before it is asked for
// again.
const Life = time.Minute

// seenBy is who saw the facts of this package.
const seenBy = "control plane"

// LeaseRows keeps leases. Implemented by store. An id that is not there gives a
// *task.Failure with task.InputNotFound.
type LeaseRows interface {
	// MakeLease keeps a lease. One that is there already stays as it is, but one
	// that ended with its stage lasts again and is counted. A lease of a task that
	// has ended or is being cancelled, or of a credential that was revoked or
	// removed, is not made: task.Cancelled, task.PolicyCredential.
	MakeLease(ctx context.Context, l task.Lent) (task.Lent, error)
	// EndLeases ends what is active of the task, in one sandbox or (empty) in all,
	// and returns all of them, also those that had ended before.
	EndLeases(ctx context.Context, taskID, sandbox, why string, at time.Time) ([]task.Lent, error)
	Lease(ctx context.Context, id string) (task.Lent, error)
	// Leases lists the task's leases in the order they were made.
	Leases(ctx context.Context, taskID string) ([]task.Lent, error)
}

// Recorder appends to the audit, once a key. Implemented by audit.
type Recorder interface {
	Record(ctx context.Context, taskID, key, kind, seenBy string, facts any) error
}

// Leases lends the vault's credentials. It is safe for concurrent use.
type Leases struct {
	vault *Vault
	rows  LeaseRows
	audit Recorder
	now   func() time.Time
	with  Minting
	mints mints
	known known.Values
}

// NewLeases returns the leases of a vault. A lease of a kind whose values are
// minted and for which m has no minter is refused.
func NewLeases(v *Vault, rows LeaseRows, audit Recorder, now func() time.Time, m Minting) *Leases {
	if m.Log == nil {
		m.Log = slog.New(slog.DiscardHandler)
	}
	return &Leases{vault: v, rows: rows, audit: audit, now: now, with: m, mints: newMints()}
}

// lent is the fact that a lease began; ended that it ended. Fields are added,
// never changed; none is ever the value.
type lent struct {
	Task       string            `json:"task"`
	Attempt    int               `json:"attempt"`
	Stage      task.StageName    `json:"stage"`
	Sandbox    string            `json:"sandbox"`
	Lease      string            `json:"lease"`
	Count      int               `json:"count"`
	Credential string            `json:"credential"`
	Kind       string            `json:"kind"`
	Settings   map[string]string `json:"settings,omitempty"`
	Header     string            `json:"header"`
	Hosts      []string          `json:"hosts"`
	Ports      []uint16          `json:"ports"`
	Methods    []string          `json:"methods,omitempty"`
	Paths      []string          `json:"paths,omitempty"`
	From       time.Time         `json:"from"`
	Until      *time.Time        `json:"until,omitempty"`
	Why        string            `json:"why,omitempty"`
}

func factsOf(l task.Lent) lent {
	return lent{
		Task: l.Task, Attempt: l.Attempt, Stage: l.Stage, Sandbox: l.Sandbox, Lease: l.ID, Count: l.Count,
		Credential: l.Credential, Kind: l.Kind, Settings: l.Settings, Header: l.Header, Hosts: l.Hosts, Ports: l.Ports, Methods: l.Methods, Paths: l.Paths,
		From: l.From, Until: l.Until, Why: l.Ended,
	}
}

// leaseID follows from what the lease is for.
func leaseID(use task.LeaseUse, credentialID string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s|%d|%s|%s|%s", use.Task, use.Attempt, use.Stage, use.Sandbox, credentialID))
	return "l-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:16]
}

var leasePattern = regexp.MustCompile(`^l-[a-z2-7]{16}$`)

// Check says whether the requester's stages can be lent every credential that
// the rules name: it exists, the requester may use it, and its binding meets
// the rule. Errors are *task.Failure that name the rule's field:
// task.PolicyCredential for one that is not usable, task.InputPolicy for a
// binding that does not meet the rule.
func (l *Leases) Check(ctx context.Context, requester string, rules map[task.StageName][]task.Rule) error {
	for _, name := range task.StageNames() {
		for _, r := range rules[name] {
			if r.Credential == "" {
				continue
			}
			if err := l.check(ctx, requester, r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *Leases) check(ctx context.Context, requester string, r task.Rule) error {
	c, err := l.vault.Get(ctx, r.Credential)
	if err != nil && task.ReasonOf(err) != task.InputNotFound {
		return err
	}
	// Another's credential and none can't be told apart.
	if err != nil || !c.Shared && c.Owner != requester {
		return task.Fail(task.PolicyCredential, fmt.Sprintf(
			"%s.credential: there is no credential %q that %s may use; an administrator adds one with: cofferdam credential add %s --host %s", r.ID, r.Credential, requester, r.Credential, r.Host), nil)
	}
	if !c.UsableBy(requester) {
		return task.Fail(task.PolicyCredential, fmt.Sprintf("%s.credential: credential %q was revoked; remove it and add it anew", r.ID, c.Name), nil)
	}
	if text := protocolFault(c, r); text != "" {
		return task.Fail(task.InputPolicy, r.ID+".credential: "+text, nil)
	}
	host := parsePattern(r.Host)
	if !slices.ContainsFunc(c.Hosts, func(h string) bool { return parsePattern(h).meets(host) }) {
		return task.Fail(task.InputPolicy, fmt.Sprintf("%s.credential: credential %q is bound to %s and never sent to %s", r.ID, c.Name, strings.Join(c.Hosts, ", "), r.Host), nil)
	}
	if !slices.ContainsFunc(c.Ports, func(p uint16) bool { return slices.Contains(r.Ports, p) }) {
		return task.Fail(task.InputPolicy, fmt.Sprintf("%s.credential: credential %q is bound to the ports %v, of which the rule allows none", r.ID, c.Name, c.Ports), nil)
	}
	return nil
}

// Lend makes the leases of the credentials that the rules of a stage name, in
// the order of their names, and then those of the stage's own tokens. It may be repeated: the same leases with the same
// placeholders come back. One that ended meanwhile for another reason than its
// stage's end comes back ended, since the stage has its placeholder already; it
// must not be granted. Every begin is on record before it is returned. Errors
// are *task.Failure.
func (l *Leases) Lend(ctx context.Context, use task.LeaseUse, rules []task.Rule) ([]task.Lent, error) {
	names := map[string]bool{}
	for _, r := range rules {
		if r.Credential != "" {
			names[r.Credential] = true
		}
	}
	var order []string
	for name := range names {
		order = append(order, name)
	}
	slices.Sort(order)
	var out []task.Lent
	for _, name := range order {
		one, err := l.lend(ctx, use, name, task.EndsWith(name, rules))
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	identity, err := l.lendIdentity(ctx, use)
	if err != nil {
		return nil, err
	}
	if len(out) > 0 {
		err = l.Learn(ctx, use.Task)
	}
	return append(out, identity...), err
}

func (l *Leases) lend(ctx context.Context, use task.LeaseUse, name string, ends *time.Time) (task.Lent, error) {
	c, err := l.vault.Get(ctx, name)
	if err != nil && task.ReasonOf(err) != task.InputNotFound {
		return task.Lent{}, err
	}
	if had, ok, herr := l.had(ctx, use, name); herr != nil {
		return task.Lent{}, herr
	} else if ok && (err != nil || c.ID != had.CredentialID || c.Revoked != nil) {
		return had, l.recordEnd(ctx, had)
	}
	if err != nil || !c.UsableBy(use.Who) {
		return task.Lent{}, task.Fail(task.PolicyCredential, fmt.Sprintf("credential %q can't be lent to the stage %s: it was revoked or removed, or %s may not use it", name, use.Stage, use.Who), nil)
	}
	// What can't be opened is told now and not when it is used.
	if _, _, err := l.vault.active(ctx, name, c.ID); err != nil {
		return task.Lent{}, err
	}
	return l.keep(ctx, task.Lent{
		Lease: task.Lease{
			ID: leaseID(use, c.ID), Credential: c.Name, Kind: c.Kind, Settings: settingsOf(c), Header: c.Header, Prefix: c.Prefix, Placeholder: placeholderOf(c),
			Hosts: c.Hosts, Ports: c.Ports, Methods: c.Methods, Paths: c.Paths, Ends: ends,
		},
		CredentialID: c.ID, Env: c.Env, Task: use.Task, Attempt: use.Attempt, Stage: use.Stage, Sandbox: use.Sandbox,
		Count: 1, From: l.moment(),
	})
}

// keep makes one lease, and puts its begin on record.
func (l *Leases) keep(ctx context.Context, want task.Lent) (task.Lent, error) {
	// The end of the time before stands in the account before the lease lasts again.
	if old, err := l.rows.Lease(ctx, want.ID); err == nil && !old.Active() {
		if err := l.recordEnd(ctx, old); err != nil {
			return task.Lent{}, err
		}
	} else if err != nil && task.ReasonOf(err) != task.InputNotFound {
		return task.Lent{}, err
	}
	have, err := l.rows.MakeLease(ctx, want)
	if err != nil {
		return task.Lent{}, err
	}
	if !have.Active() {
		return have, l.recordEnd(ctx, have)
	}
	begun := have
	begun.Until, begun.Ended = nil, ""
	key := fmt.Sprintf("credential.lent/%s/%d", have.ID, have.Count)
	return have, l.audit.Record(ctx, want.Task, key, "credential.lent", seenBy, factsOf(begun))
}

// had finds a lease of the credential's name that the stage had before, ended,
// such as one whose credential was revoked while the stage ran.
func (l *Leases) had(ctx context.Context, use task.LeaseUse, name string) (task.Lent, bool, error) {
	list, err := l.rows.Leases(ctx, use.Task)
	if err != nil {
		return task.Lent{}, false, err
	}
	for _, have := range list {
		if have.Credential == name && have.Attempt == use.Attempt && have.Stage == use.Stage && have.Sandbox == use.Sandbox && !have.Active() {
			return have, true, nil
		}
	}
	return task.Lent{}, false, nil
}

func (l *Leases) moment() time.Time { return l.now().UTC().Truncate(time.Microsecond) }

// End ends the leases of one sandbox of the task, or with an empty sandbox all
// of the task's, and puts every end on record. It may be repeated.
func (l *Leases) End(ctx context.Context, taskID, sandbox, why string) error {
	all, err := l.rows.EndLeases(ctx, taskID, sandbox, why, l.moment())
	if err != nil {
		return err
	}
	var errs []error
	for _, one := range all {
		errs = append(errs, l.recordEnd(ctx, one))
	}
	l.mints.wake()
	return errors.Join(errs...)
}

func (l *Leases) recordEnd(ctx context.Context, one task.Lent) error {
	if one.Active() {
		return nil
	}
	if one.Over(*one.Until) { // nobody was lent it since
		one.Until, one.Ended = one.Ends, task.EndedTime
	}
	key := fmt.Sprintf("credential.ended/%s/%d", one.ID, one.Count)
	return l.audit.Record(ctx, one.Task, key, "credential.ended", seenBy, factsOf(one))
}

// Of lists the leases that the task was ever lent, in order.
func (l *Leases) Of(ctx context.Context, taskID string) ([]task.Lent, error) {
	return l.rows.Leases(ctx, taskID)
}

// Add puts a credential into the vault and that on record. What can't be put on
// record is not kept.
func (l *Leases) Add(ctx context.Context, r task.CredentialRequest, by string) (task.Credential, error) {
	c, err := l.vault.Add(ctx, r)
	if err != nil {
		return task.Credential{}, err
	}
	err = l.audit.Record(ctx, "", "credential.add/"+c.ID, "credential.add", seenBy, map[string]any{
		"credential": c.Name, "id": c.ID, "owner": c.Owner, "shared": c.Shared, "kind": c.Kind, "header": c.Header,
		"hosts": c.Hosts, "ports": c.Ports, "methods": c.Methods, "paths": c.Paths, "by": by,
	})
	if err != nil {
		_, _, undo := l.vault.rows.EndCredential(context.WithoutCancel(ctx), c.Name, l.moment(), true)
		return task.Credential{}, errors.Join(err, undo)
	}
	return c, nil
}

// Get gives one credential, without its value.
func (l *Leases) Get(ctx context.Context, name string) (task.Credential, error) {
	return l.vault.Get(ctx, name)
}

// List gives every credential, by name, without their values.
func (l *Leases) List(ctx context.Context) ([]task.Credential, error) { return l.vault.List(ctx) }

// Revoke ends a credential at once: its value is wiped, its leases end, and all
// that is on record. With remove its row goes too, and its name is free. It
// returns the leases that it ended; who calls it has their connections cut.
func (l *Leases) Revoke(ctx context.Context, name, by string, remove bool) (task.Credential, []task.Lent, error) {
	was, err := l.vault.Get(ctx, name)
	if err != nil {
		return task.Credential{}, nil, err
	}
	l.remember(ctx, was)
	c, ended, err := l.vault.rows.EndCredential(ctx, name, l.moment(), remove)
	if err != nil {
		return c, nil, err
	}
	kind := "credential.revoke"
	if remove {
		kind = "credential.remove"
	}
	errs := []error{l.audit.Record(ctx, "", kind+"/"+c.ID, kind, seenBy, map[string]any{"credential": c.Name, "id": c.ID, "owner": c.Owner, "by": by, "leases": len(ended)})}
	for _, one := range ended {
		errs = append(errs, l.recordEnd(ctx, one))
	}
	l.mints.wake()
	return c, ended, errors.Join(errs...)
}

// Value lends the value for an active lease of that very sandbox, for Life at
// most, or one that is minted for it. The first time is on record before it is
// returned. Errors are *task.Failure: task.PolicyCredential for a lease that is
// not lent (any longer), without saying whose it is, or whose provider refuses to
// mint; task.InfraCredential for a provider that can't be asked at this moment.
func (l *Leases) Value(ctx context.Context, sandbox, lease string) (task.Given, error) {
	refused := task.Fail(task.PolicyCredential, "this lease is not lent to this sandbox, or it has ended", nil)
	if !leasePattern.MatchString(lease) || sandbox == "" {
		return task.Given{}, refused
	}
	have, err := l.rows.Lease(ctx, lease)
	if task.ReasonOf(err) == task.InputNotFound {
		return task.Given{}, refused
	}
	if err != nil {
		return task.Given{}, err
	}
	if have.Sandbox != sandbox || !have.Active() || have.Over(l.now()) {
		return task.Given{}, refused
	}
	if have.OfIdentity() {
		given, err := l.token(ctx, have)
		l.known.Add(have.Task, given.Value)
		return given, err
	}
	c, value, err := l.vault.active(ctx, have.Credential, have.CredentialID)
	if err != nil {
		return task.Given{}, err
	}
	given := task.Given{Value: value, Keep: Life}
	if k, ok := kindOf(c.Kind); ok && k.minted {
		if given, err = l.mint(ctx, k, c, value, have); err != nil {
			return task.Given{}, err
		}
	}
	l.known.Add(have.Task, given.Value)
	key := fmt.Sprintf("credential.given/%s/%d", have.ID, have.Count)
	if err := l.audit.Record(ctx, have.Task, key, "credential.given", seenBy, factsOf(have)); err != nil {
		return task.Given{}, err
	}
	if err := l.vault.rows.UseCredential(ctx, have.CredentialID, l.moment()); err != nil {
		return task.Given{}, err
	}
	return given, nil
}
