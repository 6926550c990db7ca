package credential

import (
	"maps"
	"slices"
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

// kind is what one kind of credential asks for. A kind that is not in kinds
// does not exist.
type kind struct {
	name string
	// header says that a header field of the credential's choice carries it.
	header bool
	// port that it is bound to when the request names none; 0: 443.
	port uint16
	// hosts that it is bound to when the request names none.
	hosts []string
	// settings that it knows, by name. No other is taken.
	settings map[string]setting
	// fault says what is wrong with a value without telling any of it.
	fault func(value string) string
	// placeholder is what the sandbox sees of it; nil: of the credential's shape.
	placeholder func(c task.Credential) string
	// whole checks what no single field says; nil: nothing. Errors name the field.
	whole func(r request) error
	// minted says that what requests carry is made for each lease by the kind's
	// Minter; the vault's value, if there is one, is what it is made from.
	minted bool
	// once says that it is made for each request and never kept.
	once bool
}

// setting is one that a kind knows.
type setting struct {
	required bool
	// lent says that whoever uses the lease needs it, so that it travels with it.
	lent bool
	// preset is what it is when it is not given; empty: nothing.
	preset string
	// fault says what is wrong with it; nil: any text without control characters
	// of at most maxSetting bytes.
	fault func(text string) string
}

const maxSetting = 1024

// kinds are all there are.
func kinds() []kind {
	return []kind{
		{name: task.KindHeader, header: true, fault: valueFault},
		queryKind(), basicKind(), gitKind(),
		postgresKind(),
		awsKind(),
		oidcKind(),
		githubAppKind(), oauthKind(), exchangeKind(), awsWebKind(),
		claudeLoginKind(), codexLoginKind(),
	}
}

func kindOf(name string) (kind, bool) {
	all := kinds()
	i := slices.IndexFunc(all, func(k kind) bool { return k.name == name })
	if i < 0 {
		return kind{}, false
	}
	return all[i], true
}

func kindNames() []string {
	var names []string
	for _, k := range kinds() {
		names = append(names, k.name)
	}
	return names
}

// check judges what a request says as one of the kind. Errors are
// *task.Failure with task.InputInvalid and name the field.
func (k kind) check(r request) error {
	if k.header {
		if text := headerFault(r.Header); text != "" {
			return invalid("header", "%q %s", r.Header, text)
		}
	} else if r.Header != "" || r.Prefix != "" {
		return invalid("header", "a credential of kind %s is not carried by a header of your choice; leave header and prefix out", k.name)
	}
	if text := prefixFault(r.Prefix); text != "" {
		return invalid("prefix", "%s", text)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Settings)) {
		s, ok := k.settings[name]
		if !ok {
			return invalid("settings."+name, "kind %s knows no such setting; it knows %s", k.name, strings.Join(slices.Sorted(maps.Keys(k.settings)), ", "))
		}
		if text := s.check(r.Settings[name]); text != "" {
			return invalid("settings."+name, "%s", text)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(k.settings)) {
		if k.settings[name].required && r.Settings[name] == "" {
			return invalid("settings."+name, "is missing; kind %s needs it", k.name)
		}
	}
	if text := k.fault(r.Value.Reveal()); text != "" {
		return invalid("value", "%s", text)
	}
	if k.whole != nil {
		return k.whole(r)
	}
	return nil
}

// preset completes settings with what the kind presets.
func (k kind) preset(given map[string]string) map[string]string {
	out := maps.Clone(given)
	for name, s := range k.settings {
		if _, ok := given[name]; !ok && s.preset != "" {
			if out == nil {
				out = map[string]string{}
			}
			out[name] = s.preset
		}
	}
	return out
}

func (s setting) check(text string) string {
	if len(text) > maxSetting {
		return "longer than 1024 bytes"
	}
	for _, c := range []byte(text) {
		if c < ' ' || c == 0x7f {
			return "has a control character"
		}
	}
	if s.fault != nil {
		return s.fault(text)
	}
	return ""
}

// settingsOf are the settings that travel with a lease.
func settingsOf(c task.Credential) map[string]string {
	k, ok := kindOf(c.Kind)
	if !ok {
		return nil
	}
	out := map[string]string{}
	for name, text := range c.Settings {
		if k.settings[name].lent {
			out[name] = text
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// placeholderOf makes what the sandbox sees of a credential.
func placeholderOf(c task.Credential) string {
	if k, ok := kindOf(c.Kind); ok && k.placeholder != nil {
		return k.placeholder(c)
	}
	return newPlaceholder(c.Shape)
}
