package credential

import (
	"cmp"
	"fmt"
	"maps"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

// The bounds of a credential.
const (
	maxValue  = 8 << 10
	minValue  = 8 // shorter values could not be told from ordinary text where they must be masked
	maxPrefix = 64
	maxList   = 64
	maxPath   = 1024
)

// request is a request for a credential while it is checked.
type request task.CredentialRequest

var (
	namePattern   = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)
	envPattern    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,126}$`)
	headerPattern = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)
	methodPattern = regexp.MustCompile(`^[A-Z]{1,20}$`)
)

func invalid(field, format string, args ...any) error {
	return task.Fail(task.InputInvalid, field+": "+fmt.Sprintf(format, args...), nil)
}

// credential checks the request strictly and gives the credential it asks for,
// without id and time. Errors are *task.Failure with task.InputInvalid and name
// the field; none holds any of the value.
func (r request) credential() (task.Credential, error) {
	r, err := r.filled()
	if err != nil {
		return task.Credential{}, err
	}
	switch {
	case !namePattern.MatchString(r.Name):
		return task.Credential{}, invalid("name", "must have 1 to 63 characters: lower-case letters, digits, dots, dashes and underscores")
	case r.Owner == "" || len(r.Owner) > 128:
		return task.Credential{}, invalid("owner", "must have 1 to 128 characters")
	case r.Env != "" && !envPattern.MatchString(r.Env):
		return task.Credential{}, invalid("env", "is not the name of a variable")
	case r.Env != "" && takenEnv(r.Env):
		return task.Credential{}, invalid("env", "%s decides how programs run; name a variable that only carries the key", r.Env)
	}
	k, ok := kindOf(r.Kind)
	if !ok {
		return task.Credential{}, invalid("kind", "%q is not known; known are %s", r.Kind, strings.Join(kindNames(), ", "))
	}
	if err := k.check(r); err != nil {
		return task.Credential{}, err
	}
	if err := r.checkBinding(); err != nil {
		return task.Credential{}, err
	}
	return task.Credential{
		Name: r.Name, Owner: r.Owner, Shared: r.Shared, Kind: k.name, Settings: maps.Clone(r.Settings),
		Header: textproto.CanonicalMIMEHeaderKey(r.Header), Prefix: r.Prefix,
		Hosts: sorted(r.Hosts), Ports: sorted(r.Ports), Methods: sorted(r.Methods), Paths: sorted(r.Paths),
		Env: r.Env, Shape: shapeOf(r.Value.Reveal(), r.Provider),
	}, nil
}

func sorted[T interface{ ~string | ~uint16 }](list []T) []T {
	out := slices.Clone(list)
	slices.Sort(out)
	return slices.Compact(out)
}

// filled completes the request from its provider and with the defaults.
func (r request) filled() (request, error) {
	if r.Provider != "" {
		i := slices.IndexFunc(task.Providers(), func(p task.Provider) bool { return p.Name == r.Provider })
		if i < 0 {
			var known []string
			for _, p := range task.Providers() {
				known = append(known, p.Name)
			}
			return r, invalid("provider", "%q is not known; known are %s", r.Provider, strings.Join(known, ", "))
		}
		p := task.Providers()[i]
		if err := r.fillFrom(p); err != nil {
			return r, err
		}
	}
	if r.Kind == "" {
		r.Kind = task.KindHeader
	}
	if k, ok := kindOf(r.Kind); ok && k.header && r.Header == "" {
		r.Header = "Authorization"
		if r.Prefix == "" {
			r.Prefix = "Bearer "
		}
	}
	if k, ok := kindOf(r.Kind); ok {
		r.Settings = k.preset(r.Settings)
		if len(r.Hosts) == 0 {
			r.Hosts = slices.Clone(k.hosts)
		}
	}
	if len(r.Ports) == 0 {
		k, _ := kindOf(r.Kind)
		r.Ports = []uint16{cmp.Or(k.port, 443)}
	}
	return r, nil
}

func (r *request) fillFrom(p task.Provider) error {
	if r.Header == "" {
		r.Header = p.Header
		if r.Prefix == "" {
			r.Prefix = p.Prefix
		}
	}
	if r.Env == "" {
		r.Env = p.Env
	}
	if len(r.Hosts) > 0 {
		return nil
	}
	u, err := url.Parse(p.URL)
	if err != nil {
		return fmt.Errorf("provider %s: %w", p.Name, err)
	}
	r.Hosts = []string{u.Hostname()}
	if port := u.Port(); port != "" && len(r.Ports) == 0 {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return fmt.Errorf("provider %s: %w", p.Name, err)
		}
		r.Ports = []uint16{uint16(n)}
	}
	return nil
}

func (r request) checkBinding() error {
	if len(r.Hosts) == 0 {
		return invalid("hosts", "none: a credential must be bound to the hosts it is for")
	}
	for field, n := range map[string]int{"hosts": len(r.Hosts), "ports": len(r.Ports), "methods": len(r.Methods), "paths": len(r.Paths)} {
		if n > maxList {
			return invalid(field, "more than %d", maxList)
		}
	}
	for i, h := range r.Hosts {
		if text := hostFault(h); text != "" {
			return invalid(fmt.Sprintf("hosts[%d]", i), "%q %s", h, text)
		}
	}
	for i, p := range r.Ports {
		if p == 0 {
			return invalid(fmt.Sprintf("ports[%d]", i), "must be 1 to 65535")
		}
	}
	for i, m := range r.Methods {
		if !methodPattern.MatchString(m) || m == "CONNECT" || m == "TRACE" {
			return invalid(fmt.Sprintf("methods[%d]", i), "%q is not a method in upper case that may carry a credential", m)
		}
	}
	for i, p := range r.Paths {
		if text := pathFault(p); text != "" {
			return invalid(fmt.Sprintf("paths[%d]", i), "%q %s", p, text)
		}
	}
	return nil
}

// pathFault says what is wrong with a path of a binding: "/a/b" exactly, "*"
// for one segment, a last "**" for any rest.
func pathFault(p string) string {
	if !strings.HasPrefix(p, "/") {
		return "must begin with /"
	}
	if len(p) > maxPath {
		return "is too long"
	}
	segments := strings.Split(p[1:], "/")
	for i, s := range segments {
		switch {
		case s == "**" && i == len(segments)-1, s == "*":
		case strings.Contains(s, "*"):
			return `may have "*" only as a whole segment and "**" only as the last one`
		case s == "." || s == ".." || s == "" && i < len(segments)-1:
			return "must have no empty segment, . or .."
		case strings.ContainsAny(s, "?#\\"):
			return "must be a path only, without query"
		}
		for _, c := range []byte(s) {
			if c <= ' ' || c >= 0x7f {
				return "must be printable and escaped as it is sent"
			}
		}
	}
	return ""
}

// headerFault says why a header can't carry a credential; empty: it can.
func headerFault(name string) string {
	if !headerPattern.MatchString(name) {
		return "is not a header's name: letters, digits and dashes"
	}
	switch h := textproto.CanonicalMIMEHeaderKey(name); {
	case h == "Host":
		return "says which server is meant, and is checked against the rule; it can't carry a credential"
	case slices.Contains([]string{
		"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Expect", "Http2-Settings", "Max-Forwards",
	}, h) || strings.HasPrefix(h, "Proxy-"):
		return "belongs to the connection and not to the request; it can't carry a credential"
	case h == "Cookie" || h == "Set-Cookie":
		return "holds many values that the program inside sets itself; it can't carry a credential"
	case slices.Contains([]string{
		"Accept", "Accept-Encoding", "Accept-Language", "Cache-Control", "Content-Encoding", "Content-Type", "Date", "Forwarded", "From", "If-Match",
		"If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since", "Origin", "Range", "Referer", "User-Agent", "Vary", "Via", "Warning",
	}, h) || strings.HasPrefix(h, "X-Forwarded-") || strings.HasPrefix(h, "Sec-"):
		return "has a meaning of its own that servers act on; it can't carry a credential"
	}
	return ""
}

func prefixFault(prefix string) string {
	if len(prefix) > maxPrefix {
		return fmt.Sprintf("longer than %d characters", maxPrefix)
	}
	for _, c := range []byte(prefix) {
		if c < ' ' || c >= 0x7f {
			return "must be printable ASCII"
		}
	}
	if strings.HasPrefix(prefix, " ") {
		return "must not begin with a space"
	}
	return ""
}

// valueFault says what is wrong with a value without telling any of it.
func valueFault(value string) string {
	switch {
	case value == "":
		return "empty"
	case strings.ContainsAny(value, "\r\n\x00"):
		return "has a line break or a NUL within, which would let it write headers of its own; give the key alone"
	case len(value) > maxValue:
		return fmt.Sprintf("longer than %d bytes", maxValue)
	case len(value) < minValue:
		return fmt.Sprintf("shorter than %d bytes", minValue)
	case strings.Contains(value, "placeholder"):
		return "is a placeholder and not a key"
	}
	for _, c := range []byte(value) {
		if c < ' ' || c >= 0x7f {
			return "has a character that a header can't carry; only printable ASCII can be sent"
		}
	}
	if strings.HasPrefix(value, " ") || strings.HasSuffix(value, " ") {
		return "begins or ends with a space"
	}
	return ""
}

// takenEnv says whether programs, the loader or we ourselves act on the
// variable.
func takenEnv(name string) bool {
	for _, p := range []string{"LD_", "COFFERDAM_", "GIT_CONFIG", "BASH_FUNC_", "DYLD_"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return slices.Contains([]string{
		"PATH", "HOME", "USER", "SHELL", "IFS", "ENV", "BASH_ENV", "PWD", "TMPDIR", "TERM", "LANG", "LC_ALL", "TZ",
		"NODE_OPTIONS", "PYTHONPATH", "PERL5OPT", "RUBYOPT", "JAVA_TOOL_OPTIONS", "GIT_SSH_COMMAND", "GIT_SSH", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS",
		"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
	}, name)
}
