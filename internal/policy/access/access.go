// Package access says by which authority an agent asks its models, and which
// rules follow from that and from the request. It is pure.
//
// Words. An agent asks directly when it asks the vendor of its models, with a key
// or with a login of a person's subscription. A gateway of models is a server of
// the operator's or of somebody else's that speaks as vendors do and has their
// keys; an agent that goes by it is lent the gateway's key and no other, and
// reaches the gateway and no vendor. What a request says itself, a credential or
// an address, is direct.
package access

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cofferdam/cofferdam/internal/policy/match"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Said is what a layer says of access. The zero Said says nothing.
type Said struct {
	Mode    string
	Gateway Gateway
	Line    int
}

// Gateway is a gateway of models.
type Gateway struct {
	Credential string
	URLs       map[string]string // where it speaks as a provider does, by the provider's name
}

// Sum is what layers say together, the lowest first: each the mode and the
// gateway where those before say none. It tells which of them said the mode, or
// the gateway where none does.
func Sum(lowest ...Said) (sum Said, by int) {
	by = -1
	for i, s := range lowest {
		if sum.Mode == "" && s.Mode != "" {
			sum.Mode, sum.Line, by = s.Mode, s.Line, i
		}
		if sum.Gateway.Credential == "" && s.Gateway.Credential != "" {
			sum.Gateway = s.Gateway
			if by < 0 {
				sum.Line, by = s.Line, i
			}
		}
	}
	return sum, by
}

// Resolve says how an agent asks its models, and gives the agent as it is started
// for that. Errors are *task.Failure and name the field.
func Resolve(agent task.AgentSpec, said Said, keys task.ModelKeys) (task.AgentSpec, task.ModelAccess, error) {
	mode := agent.Mode
	if mode == "" {
		mode = said.Mode
	}
	provider, ok := agent.ProviderOf()
	switch {
	case agent.Mode != "" && agent.Mode != task.ModelDirect && agent.Mode != task.ModelGateway && agent.Mode != task.ModelAuto:
		return agent, task.ModelAccess{}, invalid("mode", "%.40q is none of direct, gateway and auto", agent.Mode)
	case !ok && agent.Mode != "":
		return agent, task.ModelAccess{}, invalid("mode", "the agent asks no models that are known; leave it out")
	case !ok:
		return agent, task.ModelAccess{}, nil
	}
	own := agent.Credential != "" || agent.ModelURL != ""
	gateway := said.Gateway.URLs[provider.Name]
	switch {
	case mode == task.ModelGateway && own:
		return agent, task.ModelAccess{}, invalid("mode", "the gateway has its own credential and address; leave agent.credential and agent.modelURL out, or say direct")
	case mode == task.ModelGateway && gateway == "":
		return agent, task.ModelAccess{}, invalid("mode", "no gateway for models of %s is named; a policy says it as agent.access.gateway, the operator's as defaults.access.gateway", provider.Name)
	case mode != task.ModelDirect && !own && gateway != "":
		agent.Credential, agent.ModelURL = said.Gateway.Credential, gateway
		return agent, task.ModelAccess{Mode: task.ModelGateway, Credential: agent.Credential, URL: gateway}, nil
	}
	return direct(agent, provider, keys)
}

// direct is the way to the vendor: with the credential that the request names, with
// the provider's key, or with a login.
func direct(agent task.AgentSpec, provider task.Provider, keys task.ModelKeys) (task.AgentSpec, task.ModelAccess, error) {
	plain := task.ModelAccess{Mode: task.ModelDirect, Credential: agent.CredentialName(), URL: provider.URL}
	var login *task.ModelLogin
	for i, l := range keys.Logins {
		s, _ := task.SubscriptionOf(l.Kind)
		switch {
		case l.Credential == agent.CredentialName():
			login = &keys.Logins[i] // by name
			if s.Agent != agent.Name {
				return agent, plain, invalid("credential", "%s is a login of %s, which no other agent may use", l.Credential, s.Agent)
			}
		case agent.Credential == "" && login == nil && s.Agent == agent.Name && s.Provider == provider.Name:
			login = &keys.Logins[i]
		}
	}
	if login == nil || agent.Credential == "" && slices.Contains(keys.Keys, provider.Name) && login.Credential != provider.Name {
		return agent, plain, nil
	}
	agent.Credential = login.Credential
	if s, _ := task.SubscriptionOf(login.Kind); agent.ModelURL == "" {
		agent.ModelURL = s.URL
	}
	return agent, task.ModelAccess{Mode: task.ModelDirect, Credential: login.Credential, Kind: login.Kind, URL: agent.ModelURL}, nil
}

// Text tells an access in one line.
func Text(a task.ModelAccess) string {
	with := "the credential "
	if a.Kind != "" {
		with = "the login "
	}
	return a.Mode + ": " + a.URL + " with " + with + a.Credential
}

func invalid(field, format string, args ...any) *task.Failure {
	return task.Fail(task.InputInvalid, "agent."+field+": "+fmt.Sprintf(format, args...), nil)
}

// name is what names in the vault look like.
var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// IsName says whether a text can be a credential's name.
func IsName(text string) bool { return name.MatchString(text) }

// RepoRule lets the checkout stage reach the host the requester named as the
// repository, and nothing else. With a credential the connection is looked into.
func RepoRule(raw, credential string) (task.Rule, error) {
	host, port, err := Endpoint("repo.url", raw)
	if err != nil {
		return task.Rule{}, err
	}
	rule := task.Rule{ID: "repo.url", Host: host, Ports: []uint16{port}, Layer: task.LayerTask}
	if credential != "" {
		if !IsName(credential) {
			return task.Rule{}, task.Fail(task.InputInvalid, "repo.credential: is not the name of a credential", nil)
		}
		rule.Protocol, rule.Credential = task.ProtocolHTTP, credential
	}
	return rule, nil
}

// ModelRule lets the agent ask its models with the credential for them.
func ModelRule(agent task.AgentSpec) (rule task.Rule, ok bool, err error) {
	provider, ok := agent.ProviderOf()
	if !ok {
		return task.Rule{}, false, nil
	}
	host, port, err := Endpoint("agent.modelURL", provider.URL)
	if err != nil {
		return task.Rule{}, false, err
	}
	if !IsName(agent.CredentialName()) {
		return task.Rule{}, false, invalid("credential", "is not the name of a credential")
	}
	return task.Rule{
		ID: "agent.model", Host: host, Ports: []uint16{port}, Protocol: task.ProtocolHTTP,
		Credential: agent.CredentialName(), Layer: task.LayerTask,
	}, true, nil
}

// Endpoint is the host and port of an https URL.
func Endpoint(field, raw string) (host string, port uint16, err error) {
	bad := func(text string) (string, uint16, error) {
		return "", 0, task.Fail(task.InputInvalid, field+": "+text, nil)
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return bad("is not a URL")
	case u.Scheme != "https" && field == "repo.url":
		return bad("must be an https URL; push a local path with --repo PATH instead")
	case u.Scheme != "https":
		return bad("must be an https URL")
	case u.User != nil:
		return bad("must not carry a user or password")
	case u.Hostname() == "" || strings.Contains(u.Hostname(), "*"):
		return bad("has no host")
	}
	number := uint64(443)
	if p := u.Port(); p != "" {
		if number, err = strconv.ParseUint(p, 10, 16); err != nil || number == 0 {
			return bad("has a port that is none")
		}
	}
	return match.RuleHost(u.Hostname()), uint16(number), nil
}
