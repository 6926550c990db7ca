package issuer

import (
	"net/url"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Claims are what a token says. Fields are added and never change their meaning.
type Claims struct {
	Issuer   string `json:"iss"`
	Subject  string `json:"sub"`
	Audience string `json:"aud"`
	Expires  int64  `json:"exp"`
	From     int64  `json:"nbf"`
	Issued   int64  `json:"iat"`
	ID       string `json:"jti"`

	Task         string         `json:"task"`
	Stage        task.StageName `json:"stage"`
	Attempt      int            `json:"attempt"`
	Sandbox      string         `json:"sandbox"`
	Worker       string         `json:"worker,omitempty"`
	Project      string         `json:"project,omitempty"`
	Repository   string         `json:"repository"`
	Ref          string         `json:"ref"`              // as it was asked for; HEAD where none was
	Commit       string         `json:"commit,omitempty"` // as the checkout inside told it; absent before
	Requester    string         `json:"requester"`
	PolicyDigest task.Digest    `json:"policy_digest"`
	Agent        string         `json:"agent"`
}

// noProject stands in a subject where the task has no project: no project can
// have that name.
const noProject = "-"

// bundle is the repository of what a requester uploaded: its name is only what
// they say, so no token says it.
const bundle = "bundle"

// claimsOf says who a stage of a task is.
func claimsOf(t task.Task, l task.Lent, worker string) Claims {
	ref := t.Spec.Repo.Ref
	if ref == "" {
		ref = "HEAD"
	}
	c := Claims{
		Task: l.Task, Stage: l.Stage, Attempt: l.Attempt, Sandbox: l.Sandbox, Worker: worker,
		Project: t.Spec.Project, Repository: repository(t.Spec.Repo), Ref: ref, Commit: t.Commit,
		Requester: t.RequestedBy, PolicyDigest: t.PolicyDigest, Agent: t.Spec.Agent.Name,
	}
	c.Subject = subject(c)
	return c
}

// subject is project:P:repository:R:ref:REF:stage:S. Colons, percent signs and
// whatever is not printable are percent-encoded within a part, so that a
// repository or a ref can't pass for more parts than one.
func subject(c Claims) string {
	project := c.Project
	if project == "" {
		project = noProject
	}
	return "project:" + part(project) + ":repository:" + part(c.Repository) + ":ref:" + part(c.Ref) + ":stage:" + part(string(c.Stage))
}

func part(s string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`:%*?"\`, c) >= 0 {
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// repository is the host and path of a repository's URL, however it was spelled:
// the host in lower case, the usual port and a last ".git" left out.
func repository(r task.Repo) string {
	if r.URL == "" {
		return bundle
	}
	u, err := url.Parse(r.URL)
	if err != nil || u.Hostname() == "" {
		return "unknown"
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if p := u.Port(); p != "" && p != "443" {
		host += ":" + p
	}
	return host + strings.TrimSuffix(strings.TrimRight(u.EscapedPath(), "/"), ".git")
}

// Times of a token.
const (
	// Life is how long a token lives.
	Life = 10 * time.Minute
	// early is how far back it is valid from, for clocks that are a little behind.
	early = 10 * time.Second
	// apart is how far clocks may be apart before tokens stop being understood; a
	// key is published for so much longer than its last token lives.
	apart = 5 * time.Minute
)
