// Package listing reads the lists of files that our scripts make in sandboxes. Names
// in them were chosen by who works there, and end with a NUL.
package listing

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"

	"github.com/cofferdam/cofferdam/internal/output/glob"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Choice is what is kept of the listed files, and what is not.
type Choice struct {
	Names              []string // what is kept
	size               int64
	links, large, over int
}

// Text says what was left out.
func (c Choice) Text(most, count int64) string {
	var parts []string
	if len(c.Names)+c.links+c.large+c.over == 0 {
		parts = append(parts, "no file of the workspace matches files")
	}
	if c.links > 0 {
		parts = append(parts, fmt.Sprintf("%d links that match files were left out; links are not followed", c.links))
	}
	if c.large > 0 {
		parts = append(parts, fmt.Sprintf("%d files that match were left out (%s): all together may have %d bytes (limits.kept)", c.large, task.LimitSize, most))
	}
	if c.over > 0 {
		parts = append(parts, fmt.Sprintf("%d files that match were left out (%s): at most %d are kept (limits.keptFiles)", c.over, task.LimitSize, count))
	}
	return strings.Join(parts, "; ")
}

// Choose reads the list of script.Export, "f SIZE NAME" or "l 0 NAME" and a NUL
// each, and takes what matches as long as there is room.
func Choose(from io.Reader, set glob.Set, most, count int64) (Choice, error) {
	var c Choice
	r := bufio.NewReaderSize(from, 64<<10)
	for {
		entry, err := r.ReadString(0)
		if errors.Is(err, io.EOF) && entry == "" {
			return c, nil
		}
		if err != nil {
			return c, task.Fail(task.ExportFailed, "the list of the workspace's files is cut", err)
		}
		kind, rest, _ := strings.Cut(strings.TrimSuffix(entry, "\x00"), " ")
		text, name, _ := strings.Cut(rest, " ")
		size, err := strconv.ParseInt(text, 10, 64)
		if err != nil || size < 0 || name == "" {
			return c, task.Fail(task.ExportFailed, "the list of the workspace's files is garbled", err)
		}
		switch {
		case !set.Match(name):
		case kind != "f":
			c.links++
		case int64(len(c.Names)) >= count:
			c.over++
		case size > most-c.size:
			c.large++
		default:
			c.Names = append(c.Names, name)
			c.size += size
		}
	}
}

// Protected reads NUL-ended names and returns those that the agent may not
// have changed.
func Protected(names io.Reader, rules task.FileRules) ([]string, error) {
	var list []string
	r := bufio.NewReader(names)
	for {
		name, err := r.ReadString(0)
		name = strings.TrimSuffix(name, "\x00")
		if name != "" && rules.Access(name) != task.AccessWritable {
			list = append(list, name)
		}
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// TouchesManifest reads NUL-ended names and says whether one of them decides
// on dependencies.
func TouchesManifest(names io.Reader) (bool, error) {
	touched := false
	r := bufio.NewReader(names)
	for {
		name, err := r.ReadString(0)
		touched = touched || isManifest(strings.TrimSuffix(name, "\x00"))
		if errors.Is(err, io.EOF) {
			return touched, nil
		}
		if err != nil {
			return false, err
		}
	}
}

// isManifest says whether the file names dependencies or pins them.
func isManifest(name string) bool {
	base := path.Base(name)
	switch base {
	case "go.mod", "go.sum", "go.work", "go.work.sum",
		"package.json", "package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "pnpm-workspace.yaml", "yarn.lock", "bun.lock", "bun.lockb",
		"pyproject.toml", "setup.py", "setup.cfg", "Pipfile", "Pipfile.lock", "poetry.lock", "uv.lock",
		"Cargo.toml", "Cargo.lock", "pom.xml",
		"build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts", "gradle.lockfile", "libs.versions.toml",
		"Gemfile", "Gemfile.lock", "composer.json", "composer.lock", "mix.exs", "mix.lock":
		return true
	}
	return strings.HasPrefix(base, "requirements") && strings.HasSuffix(base, ".txt")
}
