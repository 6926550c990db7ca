package policy

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/cofferdam/cofferdam/internal/task"
)

// maxFile bounds a policy file; a longer one is a mistake or an attack.
const maxFile = 256 << 10

// file is a task's policy file as read.
type file struct {
	limits task.Limits
	allow  map[task.StageName][]task.Rule
}

// operatorFile is the operator's layer as read.
type operatorFile struct {
	private []task.Rule
}

// reader walks a YAML tree and keeps the errors, each with line and field.
type reader struct {
	name string // of the file, for errors
	errs []string
}

func (r *reader) errorf(n *yaml.Node, field, format string, args ...any) {
	line := 1
	if n != nil {
		line = n.Line
	}
	text := fmt.Sprintf(format, args...)
	if field == "" {
		r.errs = append(r.errs, fmt.Sprintf("%s line %d: %s", r.name, line, text))
		return
	}
	r.errs = append(r.errs, fmt.Sprintf("%s line %d: %s: %s", r.name, line, field, text))
}

func (r *reader) err() error {
	if len(r.errs) == 0 {
		return nil
	}
	return task.Fail(task.InputPolicy, strings.Join(r.errs, "; "), nil)
}

// root parses text into its top mapping; nil means an empty file.
func (r *reader) root(text string) *yaml.Node {
	if len(text) > maxFile {
		r.errorf(nil, "", "longer than %d bytes", maxFile)
		return nil
	}
	var doc yaml.Node
	if onlyComments(text) {
		return nil
	}
	loader, err := yaml.NewLoader(strings.NewReader(text))
	if err == nil {
		err = loader.Load(&doc)
	}
	if err != nil {
		r.errs = append(r.errs, r.name+": not YAML: "+strings.TrimPrefix(err.Error(), "yaml: "))
		return nil
	}
	var more yaml.Node
	if err := loader.Load(&more); !errors.Is(err, io.EOF) {
		r.errorf(&more, "", "a second document; a policy is one")
		return nil
	}
	if len(doc.Content) == 0 {
		return nil
	}
	if err := r.plain(&doc); err != nil {
		return nil
	}
	return doc.Content[0]
}

// plain refuses what makes a document mean more than it shows: anchors,
// aliases, merge keys and custom tags.
func (r *reader) plain(n *yaml.Node) error {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		r.errorf(n, "", "anchors and aliases are not allowed; write the value out")
		return r.err()
	}
	if n.Tag != "" && !slices.Contains([]string{"!!map", "!!seq", "!!str", "!!int", "!!float", "!!bool", "!!null"}, n.Tag) {
		r.errorf(n, "", "the tag %s is not allowed; remove it", n.Tag)
		return r.err()
	}
	for _, c := range n.Content {
		if err := r.plain(c); err != nil {
			return err
		}
	}
	return nil
}

// fields reads a mapping with known keys only.
func (r *reader) fields(n *yaml.Node, path string, known map[string]func(n *yaml.Node, path string)) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return
	}
	if n.Kind != yaml.MappingNode {
		r.errorf(n, path, "must be a mapping of %s", names(known))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := join(path, key.Value)
		read, ok := known[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode || !ok:
			r.errorf(key, at, "unknown field; known here: %s", names(known))
		case seen[key.Value]:
			r.errorf(key, at, "given twice; remove one")
		default:
			seen[key.Value] = true
			read(value, at)
		}
	}
}

func (r *reader) list(n *yaml.Node, path string, each func(n *yaml.Node, path string)) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return
	}
	if n.Kind != yaml.SequenceNode {
		r.errorf(n, path, "must be a list")
		return
	}
	for i, c := range n.Content {
		each(c, fmt.Sprintf("%s[%d]", path, i))
	}
}

func (r *reader) version(n *yaml.Node, path string) {
	if n.Kind != yaml.ScalarNode || n.Value != "1" {
		r.errorf(n, path, "must be 1")
	}
}

// rules reads a list of {host, ports}.
func (r *reader) rules(n *yaml.Node, path string) []task.Rule {
	var rules []task.Rule
	r.list(n, path, func(n *yaml.Node, path string) {
		rule := task.Rule{ID: path}
		var ports bool
		r.fields(n, path, map[string]func(*yaml.Node, string){
			"host":  func(n *yaml.Node, p string) { rule.Host = r.host(n, p) },
			"ports": func(n *yaml.Node, p string) { ports = true; rule.Ports = r.ports(n, p) },
		})
		if !ports {
			rule.Ports = []uint16{443}
		}
		if rule.Host == "" {
			if n.Kind == yaml.MappingNode && !hasKey(n, "host") {
				r.errorf(n, path, "host is missing")
			}
			return
		}
		rules = append(rules, rule)
	})
	return rules
}

// hostPattern is a DNS name of letters, digits, hyphens and underscores in
// labels of at most 63 (RFC 1035 §2.3.1, RFC 2181 §11 for the underscore).
var hostPattern = regexp.MustCompile(`^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*$`)

func (r *reader) host(n *yaml.Node, path string) string {
	if n.Kind != yaml.ScalarNode {
		r.errorf(n, path, "must be a name or an IP address")
		return ""
	}
	host := canonicalName(n.Value)
	if addr, err := netip.ParseAddr(host); err == nil && addr.Zone() == "" {
		return addr.Unmap().String()
	}
	switch {
	case strings.Contains(host, "*"):
		r.errorf(n, path, "patterns are not supported; name each host")
	case strings.Contains(host, "/"):
		r.errorf(n, path, "%q is not a host; give the name alone, without scheme or path", n.Value)
	case strings.Contains(host, ":"):
		r.errorf(n, path, "%q has a port; put it under ports", n.Value)
	case len(host) > 253 || !hostPattern.MatchString(host) || allDigits(host):
		r.errorf(n, path, "%q is not a host name (non-ASCII names in their xn-- form)", n.Value)
	default:
		return host
	}
	return ""
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
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		r.errorf(n, path, "is empty; name a port or leave ports out for 443")
	}
	return ports
}

func (r *reader) limits(n *yaml.Node, path string) task.Limits {
	var l task.Limits
	size := func(to *int64, min int64) func(*yaml.Node, string) {
		return func(n *yaml.Node, p string) { *to = r.size(n, p, min) }
	}
	r.fields(n, path, map[string]func(*yaml.Node, string){
		"cpus": func(n *yaml.Node, p string) {
			var cpus float64
			if err := n.Load(&cpus); err != nil || !(cpus >= 0.05 && cpus <= 1024) {
				r.errorf(n, p, "%q is not a number of cores from 0.05 to 1024", n.Value)
				return
			}
			l.MilliCPU = int64(cpus*1000 + 0.5)
		},
		"pids": func(n *yaml.Node, p string) {
			if err := n.Load(&l.PIDs); err != nil || l.PIDs < 8 || l.PIDs > 1<<20 {
				r.errorf(n, p, "%q is not a number of processes from 8 to 1048576", n.Value)
			}
		},
		"memory": size(&l.Memory, 64<<20), "disk": size(&l.Disk, 1<<20), "output": size(&l.Output, 1<<10),
		"time": func(n *yaml.Node, p string) {
			d, err := time.ParseDuration(n.Value)
			if err != nil || d < time.Second || d > 30*24*time.Hour {
				r.errorf(n, p, "%q is not a duration from 1s to 720h, such as 30m", n.Value)
				return
			}
			l.Time = d
		},
	})
	return l
}

var sizePattern = regexp.MustCompile(`^([0-9]{1,12})(KiB|MiB|GiB|TiB)$`)

// size reads "512MiB" and its like: binary units only, so that nobody has to
// guess what 1G is.
func (r *reader) size(n *yaml.Node, path string, min int64) int64 {
	m := sizePattern.FindStringSubmatch(n.Value)
	if m == nil {
		r.errorf(n, path, "%q is not a size; write a whole number with KiB, MiB, GiB or TiB", n.Value)
		return 0
	}
	shift := map[string]uint{"KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}[m[2]]
	var v int64
	if _, err := fmt.Sscan(m[1], &v); err != nil || v > (1<<50)>>shift || v<<shift < min {
		r.errorf(n, path, "%q is out of range; at least %d bytes, at most 1024TiB", n.Value, min)
		return 0
	}
	return v << shift
}

// parseFile reads a task's policy file.
func parseFile(text string) (file, error) {
	f := file{allow: map[task.StageName][]task.Rule{}}
	r := &reader{name: "policy"}
	root := r.root(text)
	if root == nil {
		return f, r.err()
	}
	stage := func(name task.StageName) func(*yaml.Node, string) {
		return func(n *yaml.Node, path string) {
			r.fields(n, path, map[string]func(*yaml.Node, string){
				"network": func(n *yaml.Node, path string) {
					r.fields(n, path, map[string]func(*yaml.Node, string){
						"allow": func(n *yaml.Node, path string) { f.allow[name] = r.rules(n, path) },
					})
				},
			})
		}
	}
	r.fields(root, "", map[string]func(*yaml.Node, string){
		"version":  r.version,
		"limits":   func(n *yaml.Node, p string) { f.limits = r.limits(n, p) },
		"checkout": stage(task.Checkout), "setup": stage(task.Setup), "agent": stage(task.Agent), "verify": stage(task.Verify),
	})
	if root.Kind == yaml.MappingNode && !hasKey(root, "version") {
		r.errorf(root, "version", "is missing; write version: 1")
	}
	return f, r.err()
}

// parseOperator reads the operator's layer.
func parseOperator(text string) (operatorFile, error) {
	var f operatorFile
	r := &reader{name: "operator policy"}
	root := r.root(text)
	if root == nil {
		return f, r.err()
	}
	r.fields(root, "", map[string]func(*yaml.Node, string){
		"version": r.version,
		"private": func(n *yaml.Node, p string) { f.private = r.rules(n, p) },
	})
	if root.Kind == yaml.MappingNode && !hasKey(root, "version") {
		r.errorf(root, "version", "is missing; write version: 1")
	}
	return f, r.err()
}

func hasKey(n *yaml.Node, key string) bool {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return true
		}
	}
	return false
}

func names(known map[string]func(*yaml.Node, string)) string {
	list := make([]string, 0, len(known))
	for name := range known {
		list = append(list, name)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// allDigits finds names that some resolvers read as an address, such as
// 2130706433 or 127.1 (every label a number).
func allDigits(host string) bool {
	return strings.Trim(host, "0123456789.") == "" || strings.HasPrefix(host, "0x")
}

func onlyComments(text string) bool {
	for line := range strings.Lines(text) {
		if l := strings.TrimSpace(line); l != "" && !strings.HasPrefix(l, "#") && l != "---" {
			return false
		}
	}
	return true
}
