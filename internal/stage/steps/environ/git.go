package environ

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

// git gives git in a sandbox what it needs to use the leases for it, in the
// environment alone: nothing of it is written to a file, and all that any of it
// can show is a placeholder. Addresses of a server for SSH are rewritten to
// https, in submodules too, since git passes this part of its environment on. A
// helper answers git when a server asks who is there: as a rule none does, since
// the gateway sets what is lent where git sets nothing. A host that a credential
// is bound to by a pattern gets nothing of this.
func git(lent []task.Lent) []string {
	var config [][2]string
	found := false
	users := map[string]int{} // leases of a server
	for _, l := range lent {
		for _, s := range gitServers(l.Lease) {
			users[s.url()]++
		}
	}
	var done []string
	for _, l := range lent {
		for _, s := range gitServers(l.Lease) {
			found = true
			if slices.Contains(done, s.url()) {
				continue
			}
			done = append(done, s.url())
			config = append(config, s.rewritten()...)
			if users[s.url()] == 1 {
				config = append(config, s.helped(l.Lease)...)
			}
		}
	}
	if !found {
		return nil
	}
	env := []string{"GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_COUNT=" + strconv.Itoa(len(config))}
	for i, c := range config {
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, c[0]), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, c[1]))
	}
	return env
}

// gitServer is where git asks, over https.
type gitServer struct {
	host string
	port uint16
}

// gitServers are those that the lease is bound to by name.
func gitServers(l task.Lease) []gitServer {
	var all []gitServer
	if l.Carried() != task.KindGit {
		return nil
	}
	for _, host := range l.Hosts {
		if strings.Contains(host, "*") {
			continue
		}
		for _, port := range l.Ports {
			all = append(all, gitServer{host, port})
		}
	}
	return all
}

// url is the server's, without a slash at its end.
func (s gitServer) url() string {
	if s.port != 443 {
		return fmt.Sprintf("https://%s:%d", s.name(), s.port)
	}
	return "https://" + s.name()
}

// name is the host as URLs have it.
func (s gitServer) name() string {
	if strings.Contains(s.host, ":") {
		return "[" + s.host + "]"
	}
	return s.host
}

// rewritten has every usual address of the server for other protocols stand for
// https. Git takes the longest that fits.
func (s gitServer) rewritten() [][2]string {
	key := "url." + s.url() + "/.insteadOf"
	var config [][2]string
	for _, from := range []string{
		"git@" + s.name() + ":", "git@" + s.name() + ":/",
		"ssh://git@" + s.name() + "/", "ssh://git@" + s.name() + ":22/", "ssh://" + s.name() + "/",
		"git+ssh://git@" + s.name() + "/", "git://" + s.name() + "/",
	} {
		config = append(config, [2]string{key, from})
	}
	return config
}

// helped has git answer a server that asks who is there with the placeholder,
// and keep it nowhere.
func (s gitServer) helped(l task.Lease) [][2]string {
	user := l.Settings[task.SettingUser]
	if user == "" || strings.ContainsAny(user, "'\\%\n") || strings.ContainsAny(l.Placeholder, "'\\%\n") {
		return nil
	}
	key := "credential." + s.url() + ".helper"
	// An empty one forgets those that were configured before.
	return [][2]string{{key, ""}, {key, fmt.Sprintf(`!f() { test "$1" = get && printf 'username=%s\npassword=%s\n'; }; f`, user, l.Placeholder)}}
}
