package policy

import (
	"cmp"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
	"golang.org/x/net/publicsuffix"

	"github.com/cofferdam/cofferdam/internal/policy/access"
	"github.com/cofferdam/cofferdam/internal/policy/ending"
	"github.com/cofferdam/cofferdam/internal/policy/match"
	"github.com/cofferdam/cofferdam/internal/task"
)

// lined is a rule and the line it stands on; 0: no file says it.
type lined struct {
	task.Rule
	line   int
	preset string // that it comes from; empty: it is written out
}

// rules reads a list of rules; the list that is named and empty is not nil.
func (r *reader) rules(n *yaml.Node, path string) []lined {
	rules := []lined{}
	if len(n.Content) > maxRules {
		r.errorf(n, path, "%d rules; the most is %d. Use patterns, or name what is needed", len(n.Content), maxRules)
		return rules
	}
	r.list(n, path, func(n *yaml.Node, path string) {
		if n.Kind == yaml.MappingNode && hasKey(n, "preset") {
			rules = append(rules, r.preset(n, path)...)
		} else if rule, ok := r.rule(n, path); ok {
			rules = append(rules, lined{Rule: rule, line: n.Line})
		}
	})
	if len(rules) > maxRules {
		r.errorf(n, path, "%d rules with those of presets; the most is %d", len(rules), maxRules)
	}
	return rules
}

func (r *reader) rule(n *yaml.Node, path string) (task.Rule, bool) {
	before := r.wrong
	rule := task.Rule{ID: r.id(path), Layer: r.layer}
	r.fields(n, path, map[string]func(*yaml.Node, string){
		"host":       func(n *yaml.Node, p string) { rule.Host = r.host(n, p) },
		"ports":      func(n *yaml.Node, p string) { rule.Ports = r.ports(n, p) },
		"protocol":   func(n *yaml.Node, p string) { rule.Protocol = r.protocol(n, p) },
		"methods":    func(n *yaml.Node, p string) { rule.Methods = r.methods(n, p) },
		"paths":      func(n *yaml.Node, p string) { rule.Paths = r.paths(n, p) },
		"query":      func(n *yaml.Node, p string) { rule.Query = r.matches(n, p, match.Parameter) },
		"headers":    func(n *yaml.Node, p string) { rule.Headers = r.matches(n, p, match.Header) },
		"body":       func(n *yaml.Node, p string) { rule.Body = r.body(n, p) },
		"credential": func(n *yaml.Node, p string) { rule.Credential = r.credential(n, p) },
		"until":      func(n *yaml.Node, p string) { rule.Until, rule.For = ending.Parse(n, p, r.errorf) },
	})
	if rule.Ports == nil && r.wrong == before {
		rule.Ports = []uint16{443}
		if rule.Protocol == task.ProtocolPostgres {
			rule.Ports = []uint16{5432}
		}
	}
	if rule.Host == "" && r.wrong == before {
		r.errorf(n, path, "host is missing; name the host that may be reached")
	}
	if slices.Contains([]string{task.ProtocolTLS, task.ProtocolTCP, task.ProtocolPostgres}, rule.Protocol) {
		for field, set := range map[string]bool{
			"methods": len(rule.Methods) > 0, "paths": len(rule.Paths) > 0,
			"query": len(rule.Query) > 0, "headers": len(rule.Headers) > 0, "body": rule.Body != nil,
			"credential": rule.Credential != "" && rule.Protocol != task.ProtocolPostgres,
		} {
			if set {
				r.errorf(n, join(path, field), "can't apply with protocol %s, whose requests nobody sees; write protocol: http, or leave %s out", rule.Protocol, field)
			}
		}
	}
	if r.wrong == before {
		r.operation(n, path, rule)
	}
	return rule, r.wrong == before
}

// id names a rule in records: by where it stands, after its layer but for a task's.
func (r *reader) id(path string) string {
	if r.layer == task.LayerTask || r.layer == "" {
		return path
	}
	return r.layer + "." + path
}

// hostPattern is a DNS name of letters, digits, hyphens and underscores in
// labels of at most 63 (RFC 1035 §2.3.1, RFC 2181 §11 for the underscore).
var hostPattern = regexp.MustCompile(`^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*$`)

func (r *reader) host(n *yaml.Node, path string) string {
	if n.Kind != yaml.ScalarNode {
		r.errorf(n, path, "must be a name, a pattern or an IP address")
		return ""
	}
	host := match.CanonicalName(n.Value)
	if addr, err := netip.ParseAddr(host); err == nil && addr.Zone() == "" {
		return addr.Unmap().String()
	}
	name, pattern := host, false
	if strings.Contains(host, "*") {
		if name, _, pattern = match.CutPattern(host); !pattern {
			r.errorf(n, path, "%q is not a pattern; write \"*.example.com\" for one label, \"**.example.com\" for one or more, in quotes", n.Value)
			return ""
		}
	}
	switch {
	case reservedFault(host) != "":
		r.errorf(n, path, "%s", reservedFault(host))
	case strings.Contains(host, "/"):
		r.errorf(n, path, "%q is not a host; give the name alone, without scheme or path", n.Value)
	case strings.Contains(host, ":"):
		r.errorf(n, path, "%q has a port; put it under ports", n.Value)
	case len(host) > 253 || !hostPattern.MatchString(name) || match.AllDigits(name):
		r.errorf(n, path, "%q is not a host name (non-ASCII names in their xn-- form)", n.Value)
	case pattern && publicSuffix(name):
		r.errorf(n, path, "%q stands for names that anybody can register beneath %s; name each host, or a pattern beneath a name of yours", n.Value, name)
	default:
		return host
	}
	return ""
}

// publicSuffix says whether strangers register names right beneath name.
func publicSuffix(name string) bool {
	suffix, _ := publicsuffix.PublicSuffix(name)
	return suffix == name
}

func (r *reader) ports(n *yaml.Node, path string) []uint16 {
	var ports []uint16
	r.list(n, path, func(n *yaml.Node, path string) {
		var port int
		if err := n.Load(&port); err != nil || n.Tag != "!!int" || port < 1 || port > 65535 {
			r.errorf(n, path, "%q is not a port; give a number from 1 to 65535", n.Value)
			return
		}
		ports = append(ports, uint16(port))
	})
	r.notEmpty(n, path, "name a port or leave ports out for 443")
	return ports
}

func (r *reader) notEmpty(n *yaml.Node, path, fix string) {
	if len(n.Content) == 0 && (n.Kind == yaml.SequenceNode || n.Tag == "!!null") {
		r.errorf(n, path, "is empty, so the rule could never match; %s", fix)
	}
}

func (r *reader) protocol(n *yaml.Node, path string) string {
	return r.oneOf(n, path, task.ProtocolTLS, task.ProtocolHTTP, task.ProtocolTCP, task.ProtocolPostgres)
}

// knownMethods are those of HTTP and WebDAV that are no tunnel and no echo.
func knownMethods() []string {
	return []string{
		"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS",
		"PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK", "REPORT", "SEARCH", "QUERY",
	}
}

func (r *reader) methods(n *yaml.Node, path string) []string {
	var methods []string
	r.list(n, path, func(n *yaml.Node, path string) {
		switch {
		case n.Kind == yaml.ScalarNode && slices.Contains(methods, n.Value):
			r.errorf(n, path, "%s is given twice; remove one", n.Value)
		case n.Kind == yaml.ScalarNode && slices.Contains(knownMethods(), n.Value):
			methods = append(methods, n.Value)
		default:
			r.errorf(n, path, "%q is not a method; write one of %s", n.Value, strings.Join(knownMethods(), ", "))
		}
	})
	r.notEmpty(n, path, "name a method or leave methods out for any")
	return methods
}

func (r *reader) paths(n *yaml.Node, path string) []string {
	var paths []string
	r.list(n, path, func(n *yaml.Node, path string) {
		if fault := match.PathFault(n.Value); fault != "" || n.Kind != yaml.ScalarNode {
			r.errorf(n, path, "%q %s", n.Value, cmp.Or(fault, "must be a text"))
			return
		}
		paths = append(paths, n.Value)
	})
	r.notEmpty(n, path, "name a path or leave paths out for any")
	return paths
}

func (r *reader) credential(n *yaml.Node, path string) string {
	if n.Kind != yaml.ScalarNode || !access.IsName(n.Value) {
		r.errorf(n, path, "%q is not the name of a credential; `cofferdam credential ls` shows yours", n.Value)
		return ""
	}
	return n.Value
}
