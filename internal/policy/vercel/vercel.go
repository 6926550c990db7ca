package vercel

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Fault is something that can't be taken over.
type Fault struct {
	Node  *yaml.Node // where it stands
	Field string
	Text  string
}

// Is says whether a document has their form: by form: vercel, or by keys that
// ours doesn't have.
func Is(root *yaml.Node) bool {
	if root.Kind == yaml.ScalarNode {
		return slices.Contains([]string{"allow-all", "deny-all"}, root.Value)
	}
	if root.Kind != yaml.MappingNode || value(root, "version") != nil {
		return false
	}
	return slices.ContainsFunc([]string{"form", "networkPolicy", "allow", "subnets", "mode", "allowedDomains", "allowedCIDRs", "deniedCIDRs"}, func(k string) bool { return value(root, k) != nil })
}

// Translate gives the document of ours that theirs comes to.
func Translate(root *yaml.Node) (*yaml.Node, []Fault) {
	t := &translation{}
	t.policy(root, "")
	if len(t.faults) > 0 {
		return nil, t.faults
	}
	line := root.Line
	list := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Line: line, Content: t.rules}
	stage := func() *yaml.Node { return mapping(line, "network", mapping(line, "allow", list)) }
	return mapping(line, "version", scalar(line, "!!int", "1"), "setup", stage(), "agent", stage()), nil
}

type translation struct {
	rules  []*yaml.Node
	faults []Fault
}

func (t *translation) refuse(n *yaml.Node, field, format string, args ...any) {
	t.faults = append(t.faults, Fault{n, field, fmt.Sprintf(format, args...)})
}

func (t *translation) policy(n *yaml.Node, path string) {
	if n.Kind == yaml.ScalarNode {
		switch n.Value {
		case "deny-all":
		case "allow-all":
			t.refuse(n, path, "allow-all opens everything, which no policy does here; name the hosts under allow, or presets such as npm and go in a policy of ours")
		default:
			t.refuse(n, path, "%q is neither deny-all nor a mapping with allow", n.Value)
		}
		return
	}
	t.each(n, path, map[string]func(*yaml.Node, string){
		"form": func(n *yaml.Node, p string) {
			if n.Value != "vercel" {
				t.refuse(n, p, "%q is not a form that is known; write vercel, or version: 1 for a policy of ours", n.Value)
			}
		},
		"networkPolicy": t.policy,
		"mode": func(n *yaml.Node, p string) {
			if n.Value != "custom" {
				t.policy(&yaml.Node{Kind: yaml.ScalarNode, Value: n.Value, Line: n.Line}, p)
			}
		},
		"allow": func(n *yaml.Node, p string) {
			if n.Kind == yaml.MappingNode {
				t.domains(n, p)
				return
			}
			t.list(n, p, func(n *yaml.Node, p string) { t.domain(n, p, nil) })
		},
		"subnets": func(n *yaml.Node, p string) {
			t.each(n, p, map[string]func(*yaml.Node, string){
				"allow": func(n *yaml.Node, p string) { t.list(n, p, t.subnet) },
				"deny":  func(n *yaml.Node, p string) { t.list(n, p, t.denied) },
			})
		},
		"allowedDomains": func(n *yaml.Node, p string) { t.list(n, p, func(n *yaml.Node, p string) { t.domain(n, p, nil) }) },
		"allowedCIDRs":   func(n *yaml.Node, p string) { t.list(n, p, t.subnet) },
		"deniedCIDRs":    func(n *yaml.Node, p string) { t.list(n, p, t.denied) },
	})
}

// domains takes domains with their rules.
func (t *translation) domains(n *yaml.Node, path string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, rules := n.Content[i], n.Content[i+1]
		p := path + "." + key.Value
		if rules.Kind != yaml.SequenceNode {
			t.refuse(rules, p, "must be a list of rules; [] allows the domain without any")
			continue
		}
		if len(rules.Content) == 0 {
			t.domain(key, p, nil)
		}
		t.list(rules, p, func(n *yaml.Node, p string) { t.rule(key, n, p) })
	}
}

// domain allows one domain, with more fields of a rule.
func (t *translation) domain(n *yaml.Node, path string, more []*yaml.Node) {
	host := n.Value
	switch {
	case n.Kind != yaml.ScalarNode || host == "":
		t.refuse(n, path, "must be the name of a domain")
		return
	case host == "*":
		t.refuse(n, path, "\"*\" opens everything, which no policy does here; name the hosts")
		return
	case strings.HasPrefix(host, "*."):
		host = "**." + host[2:] // theirs stands for names of any depth
	}
	if strings.Contains(strings.TrimPrefix(host, "**."), "*") {
		t.refuse(n, path, "%q has a star that is not the first label; name each host", n.Value)
		return
	}
	t.rules = append(t.rules, &yaml.Node{
		Kind: yaml.MappingNode, Tag: "!!map", Line: n.Line, Content: append([]*yaml.Node{scalar(n.Line, "!!str", "host"), scalar(n.Line, "!!str", host)}, more...),
	})
}

// rule takes one rule of a domain. Theirs only changes what matches, and lets
// the rest pass; ours allows what matches.
func (t *translation) rule(domain, n *yaml.Node, path string) {
	before := len(t.faults)
	var more []*yaml.Node
	add := func(line int, field string, v *yaml.Node) { more = append(more, scalar(line, "!!str", field), v) }
	t.each(n, path, map[string]func(*yaml.Node, string){
		"match": func(n *yaml.Node, p string) { t.match(n, p, add) },
		"transform": func(n *yaml.Node, p string) {
			if name := t.transform(n, p); name != "" {
				add(n.Line, "credential", scalar(n.Line, "!!str", name))
			}
		},
		"forwardURL": func(n *yaml.Node, p string) {
			t.refuse(n, p, "requests go where they are addressed to, and nowhere else; leave it out")
		},
	})
	if len(t.faults) == before {
		t.domain(domain, path, more)
	}
}

func (t *translation) match(n *yaml.Node, path string, add func(int, string, *yaml.Node)) {
	t.each(n, path, map[string]func(*yaml.Node, string){
		"method": func(n *yaml.Node, p string) {
			if n.Kind != yaml.SequenceNode {
				t.refuse(n, p, "must be a list of methods")
				return
			}
			add(n.Line, "methods", n)
		},
		"path": func(n *yaml.Node, p string) {
			if paths := t.path(n, p); paths != nil {
				add(n.Line, "paths", paths)
			}
		},
		"queryString": func(n *yaml.Node, p string) { add(n.Line, "query", t.entries(n, p)) },
		"headers":     func(n *yaml.Node, p string) { add(n.Line, "headers", t.entries(n, p)) },
	})
}

// path takes what a path must be. A prefix that ends within a segment is taken
// for that segment as a whole.
func (t *translation) path(n *yaml.Node, path string) *yaml.Node {
	kind, text := t.matcher(n, path)
	switch kind {
	case "exact":
		return sequence(n.Line, text)
	case "startsWith":
		dir := strings.TrimSuffix(text, "/")
		if dir == text && text != "" {
			return sequence(n.Line, text, text+"/**")
		}
		return sequence(n.Line, dir+"/**")
	case "regex":
		t.refuse(n, path, "paths are not matched by expressions here; write exact or startsWith, one rule each")
	}
	return nil
}

// matcher reads {exact: …}, {startsWith: …} or {regex: …}.
func (t *translation) matcher(n *yaml.Node, path string) (kind, text string) {
	before := len(t.faults)
	read := func(k string) func(*yaml.Node, string) {
		return func(n *yaml.Node, p string) {
			if n.Kind != yaml.ScalarNode || kind != "" {
				t.refuse(n, p, "must be one text, beside no other")
			}
			kind, text = k, n.Value
		}
	}
	t.each(n, path, map[string]func(*yaml.Node, string){"exact": read("exact"), "startsWith": read("startsWith"), "regex": read("regex")})
	if kind == "" && len(t.faults) == before {
		t.refuse(n, path, "needs exact, startsWith or regex")
	}
	return kind, text
}

// entries takes matchers of the query or of headers.
func (t *translation) entries(n *yaml.Node, path string) *yaml.Node {
	out := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Line: n.Line}
	t.list(n, path, func(n *yaml.Node, path string) {
		var name string
		kind, text := "regex", ".*" // any value, when none is said
		t.each(n, path, map[string]func(*yaml.Node, string){
			"key": func(n *yaml.Node, p string) {
				var k string
				if k, name = t.matcher(n, p); k != "exact" && k != "" {
					t.refuse(n, p, "a name is matched exactly; write exact")
				}
			},
			"value": func(n *yaml.Node, p string) { kind, text = t.matcher(n, p) },
		})
		field := map[string]string{"exact": "exact", "startsWith": "prefix", "regex": "re2"}[kind]
		if name == "" {
			t.refuse(n, path, "needs key: {exact: NAME}")
		} else if field != "" {
			out.Content = append(out.Content, mapping(n.Line, "name", scalar(n.Line, "!!str", name), field, scalar(n.Line, "!!str", text)))
		}
	})
	return out
}

// reference is what stands for a credential of the vault in a header.
var reference = regexp.MustCompile(`^(?:[A-Za-z]+ )?credential:([A-Za-z0-9][A-Za-z0-9._-]{0,63})$`)

// transform finds the one credential that headers name. A header with a value of
// its own is refused without being repeated: it may be a secret.
func (t *translation) transform(n *yaml.Node, path string) string {
	name := ""
	t.list(n, path, func(n *yaml.Node, path string) {
		t.each(n, path, map[string]func(*yaml.Node, string){"headers": func(n *yaml.Node, path string) {
			if n.Kind != yaml.MappingNode {
				t.refuse(n, path, "must be a mapping of headers")
				return
			}
			for i := 0; i+1 < len(n.Content); i += 2 {
				p := path + "." + n.Content[i].Value
				m := reference.FindStringSubmatch(n.Content[i+1].Value)
				switch {
				case m == nil:
					t.refuse(n.Content[i+1], p, "sets a value of its own, and a policy holds no secrets: keep it with `cofferdam credential add NAME --header %s --host HOST` and write \"credential:NAME\" here", n.Content[i].Value)
				case name != "" && name != m[1]:
					t.refuse(n.Content[i+1], p, "one rule lends one credential; it lends %q already", name)
				default:
					name = m[1]
				}
			}
		}})
	})
	return name
}

// subnet takes an address; a range is refused.
func (t *translation) subnet(n *yaml.Node, path string) {
	prefix, err := netip.ParsePrefix(n.Value)
	if addr, e := netip.ParseAddr(n.Value); e == nil {
		prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	switch {
	case err != nil:
		t.refuse(n, path, "%q is not an address", n.Value)
	case !prefix.IsSingleIP():
		t.refuse(n, path, "%s opens a range of addresses, which no policy does here; name each host. Private ones are opened by the machine's owner, by host and port (private: in the operator policy)", n.Value)
	default:
		t.domain(scalar(n.Line, "!!str", prefix.Addr().String()), path, nil)
	}
}

// denied takes a range that is closed. Private ones are closed anyhow; what a
// public one would take away from the domains can't be said here.
func (t *translation) denied(n *yaml.Node, path string) {
	prefix, err := netip.ParsePrefix(n.Value)
	if addr, e := netip.ParseAddr(n.Value); e == nil {
		prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	switch {
	case err != nil:
		t.refuse(n, path, "%q is not an address or a range", n.Value)
	case !closed(prefix):
		t.refuse(n, path, "%s is public: what is not allowed is denied here, and a name is allowed whatever its public address is; leave it out, or leave the names out", n.Value)
	}
}

// closed says whether a range is never reached unless the operator opens it.
func closed(p netip.Prefix) bool {
	for _, text := range []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "169.254.0.0/16", "100.64.0.0/10", "0.0.0.0/8", "224.0.0.0/3", "fc00::/7", "fe80::/10", "::1/128"} {
		c := netip.MustParsePrefix(text)
		if c.Bits() <= p.Bits() && c.Contains(p.Addr()) {
			return true
		}
	}
	return false
}

// each reads a mapping with known keys only.
func (t *translation) each(n *yaml.Node, path string, known map[string]func(*yaml.Node, string)) {
	if n.Kind != yaml.MappingNode {
		t.refuse(n, path, "must be a mapping")
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		p := strings.TrimPrefix(path+"."+key.Value, ".")
		read, ok := known[key.Value]
		switch {
		case !ok:
			t.refuse(key, p, "is not known of Vercel's policies, so it is not taken over")
		case seen[key.Value]:
			t.refuse(key, p, "given twice; remove one")
		default:
			read(n.Content[i+1], p)
		}
		seen[key.Value] = true
	}
}

func (t *translation) list(n *yaml.Node, path string, each func(*yaml.Node, string)) {
	if n.Kind != yaml.SequenceNode {
		t.refuse(n, path, "must be a list")
		return
	}
	for i, c := range n.Content {
		each(c, fmt.Sprintf("%s[%d]", path, i))
	}
}

func value(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

func scalar(line int, tag, text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: text, Line: line}
}

func sequence(line int, texts ...string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Line: line}
	for _, text := range texts {
		n.Content = append(n.Content, scalar(line, "!!str", text))
	}
	return n
}

// mapping makes a mapping of keys and nodes in turn.
func mapping(line int, pairs ...any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: line}
	for i := 0; i+1 < len(pairs); i += 2 {
		key, _ := pairs[i].(string)
		v, _ := pairs[i+1].(*yaml.Node)
		n.Content = append(n.Content, scalar(line, "!!str", key), v)
	}
	return n
}
