package inside

import (
	"context"
	"encoding/base64"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

func (t *try) queryElsewhere() verdict {
	p := placeholder(queryVariable)
	if p == "" {
		return untried("no credential for a query is lent here")
	}
	// The right one first, so that there is something to take away.
	answer, err := t.bound("/query/fine?a=b&key=" + p).send()
	if v := t.unseen("the right query", answer, err); v.outcome != "held" {
		return v
	}
	return each([]string{"?other=" + p, "?key=" + p + "&key=mine", "?key=mine&key=" + p, "?key=" + p + "&key=" + p, "?key=" + p + "x", "?Key=" + p, "?key%20=" + p}, func(query string) verdict {
		return t.forbidden(t.bound(t.no("/query") + query))
	})
}

func basicField(user, password string) string {
	return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

func (t *try) basicElsewhere() verdict {
	p := placeholder(basicVariable)
	if p == "" {
		return untried("no password is lent here")
	}
	answer, err := t.bound("/basic/fine", basicField("robot", p)).send()
	if v := t.unseen("the right password", answer, err); v.outcome != "held" {
		return v
	}
	return each([]string{basicField(p, "x"), basicField("me", p), basicField("robot", p+":x"), basicField("robot:x", p), "Authorization: Bearer " + p, "Authorization: Basic " + p, "X-Other: " + p}, func(f string) verdict {
		return t.forbidden(t.bound(t.no("/basic"), f))
	})
}

// gitElsewhere asks with git's placeholder for what the credential is not for.
func (t *try) gitElsewhere() verdict {
	p := placeholder(gitVariable)
	if p == "" {
		return untried("no credential for git is lent here")
	}
	// The repository's name has the mark, since git's paths are all there is.
	return each([]string{
		t.no("/acme") + ".git/info/refs?service=git-upload-pack", t.no("/acme/app.git"), t.no("/acme/app.git") + "/info/refs?service=git-upload-pack",
	}, func(path string) verdict { return t.forbidden(t.bound(path, basicField("x-access-token", p))) })
}

func (t *try) gitPush() verdict {
	p := placeholder(gitVariable)
	if p == "" {
		return untried("no credential for git is lent here")
	}
	push := t.bound("/acme/app.git/git-receive-pack", basicField("x-access-token", p), "X-Check: "+t.mark())
	push.method, push.body = "POST", "0000"
	return each([]request{push, t.bound("/acme/app.git/info/refs?service=git-receive-pack", basicField("x-access-token", p))}, t.forbidden)
}

// gitTraces has git ask its server, and looks in all that git says and keeps.
func (t *try) gitTraces() verdict {
	if placeholder(gitVariable) == "" {
		return untried("no credential for git is lent here")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	from := "https://" + t.far() + "/acme/app.git"
	script := `export GIT_TRACE=1 GIT_TRACE_CURL=1 GIT_CURL_VERBOSE=1 GIT_TRACE_REDACT=0 GIT_TRACE_SETUP=1
cd /workspace; git ls-remote ` + from + ` && echo HEARD
printf 'protocol=https\nhost=` + t.far() + `\n\n' | git credential fill
git -c http.extraHeader='X-Check: x' ls-remote https://` + t.far() + `/acme/none.git
unset GIT_TRACE GIT_TRACE_CURL GIT_CURL_VERBOSE GIT_TRACE_SETUP
git config -l --show-origin; git reflog --all; git remote -v; cat .git/config "$HOME/.gitconfig" "$HOME/.git-credentials" .git/logs/HEAD`
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.WaitDelay = time.Second
	said, _ := cmd.CombinedOutput()
	if form := t.shows(string(said)); form != "" {
		return fell("git shows it, as %.24s…", form)
	}
	if !strings.Contains(string(said), "HEARD") {
		return untried("git was not answered: %.300s", said)
	}
	return held("git was answered, and %d bytes of its settings, history and traces have no value", len(said))
}

// without looks for the value in files.
func (t *try) without(what string, files []string) verdict {
	n := 0
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		// The plan says how values begin.
		if form := t.shows(string(text)); form != "" && !strings.Contains(string(text), t.plan.Nonce) {
			return fell("%s has it, as %.24s…", f, form)
		}
		n++
	}
	if n == 0 {
		return untried("%s: nothing could be read", what)
	}
	return held("%d %s have no value", n, what)
}

func (t *try) valueInProcesses() verdict {
	var all []string
	for _, pattern := range []string{"/proc/[0-9]*/environ", "/proc/[0-9]*/cmdline", "/proc/[0-9]*/task/*/environ"} {
		some, _ := filepath.Glob(pattern)
		all = append(all, some...)
	}
	return t.without("environments and arguments", all)
}

func (t *try) valueInFiles() verdict {
	var all []string
	for _, root := range []string{"/workspace", os.Getenv("HOME"), "/tmp", "/etc", "/run", "/var", "/dev/shm"} {
		_ = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			if err != nil || len(all) > 20_000 {
				return nil // what can't be listed has nothing to see
			}
			if i, ierr := d.Info(); ierr == nil && d.Type().IsRegular() && i.Size() < 1<<20 {
				all = append(all, p)
			}
			return nil
		})
	}
	return t.without("files", all)
}
