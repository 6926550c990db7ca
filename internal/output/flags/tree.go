package flags

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// The bounds of what is remembered of names, to see what they come to together.
const (
	maxNames     = 200_000
	maxNameBytes = 32 << 20
	maxTarget    = 4096
	maxFollowed  = 40
)

// fault is what only the whole patch shows of a name.
type fault struct{ id, name, why string }

// tree is what a patch makes: its names, its links.
type tree struct {
	names   []string
	bytes   int
	over    bool
	links   map[string]string // by name
	order   []string          // of links
	unread  map[string]bool   // links whose target isn't shown
	parents map[string]string // folded names of files and folders, as they were written first
	clashes []fault
	bare    map[string]int // folders by what they have of a repository
}

// What a folder has of a repository.
const (
	hasHead = 1 << iota
	hasConfig
	hasObjects
)

func newTree() *tree {
	return &tree{links: map[string]string{}, unread: map[string]bool{}, parents: map[string]string{}, bare: map[string]int{}}
}

// enter remembers a file that is there after the patch.
func (t *tree) enter(name string) {
	if t.bytes += len(name); len(t.names) >= maxNames || t.bytes > maxNameBytes || len(t.parents) >= maxNames {
		t.over = true
		return
	}
	t.names = append(t.names, name)
	t.clash(name)
	parts := strings.Split(folded(name), "/")
	switch base := parts[len(parts)-1]; base {
	case "head":
		t.bare[path.Dir(name)] |= hasHead
	case "config":
		t.bare[path.Dir(name)] |= hasConfig
	}
	for i, part := range parts[:len(parts)-1] {
		if part == "objects" || part == "refs" || part == "hooks" {
			t.bare[cmpDir(name, i)] |= hasObjects
		}
	}
}

// cmpDir is the folder of the name's i-th part.
func cmpDir(name string, i int) string {
	if i == 0 {
		return "."
	}
	return strings.Join(strings.Split(name, "/")[:i], "/")
}

// clash finds a name that is another's where case and accents don't count.
func (t *tree) clash(name string) {
	for i := range len(name) + 1 {
		if i < len(name) && name[i] != '/' {
			continue
		}
		key := folded(name[:i])
		have, known := t.parents[key]
		if !known {
			t.parents[key] = name[:i]
			continue
		}
		if have != name[:i] {
			t.clashes = append(t.clashes, fault{"name.clash", name, "Where case and accents don't count the name is the same as another one in the patch."})
			return
		}
	}
}

// leave forgets a file that the patch removes.
func (t *tree) leave(name string) {
	delete(t.links, name)
	delete(t.unread, name)
}

// link remembers a link.
func (t *tree) link(name, target string, unread bool) {
	if len(t.links) >= maxNames {
		t.over = true
		return
	}
	t.links[name] = target
	t.order = append(t.order, name)
	if unread {
		t.unread[name] = true
	}
}

// faults are what the tree comes to, in the order of the patch.
func (t *tree) faults() []fault {
	list := slices.Clone(t.clashes)
	for _, name := range t.order {
		if _, there := t.links[name]; there {
			list = append(list, t.follow(name)...)
		}
	}
	for _, name := range t.names {
		for i := range len(name) {
			if _, link := t.links[name[:i]]; link && name[i] == '/' {
				list = append(list, fault{"link.through", name, "The file lies behind a link that the same patch makes, so it would be written elsewhere."})
				break
			}
		}
		if has := t.bare[path.Dir(name)]; foldedBase(name) == "head" && has&hasHead != 0 && has&(hasConfig|hasObjects) != 0 {
			list = append(list, fault{"git.bare", name, "The folder is a repository of its own, whose configuration git obeys when it is entered."})
		}
	}
	if t.over {
		list = append(list, fault{"limit.files", "", "The patch has more names than are compared with each other."})
	}
	return list
}

var drive = regexp.MustCompile(`^([A-Za-z]:|\\|/)`)

// follow says where a link leads.
func (t *tree) follow(name string) []fault {
	target := t.links[name]
	switch {
	case t.unread[name]:
		return []fault{{"link.unread", name, "Where the link leads isn't shown as text."}}
	case drive.MatchString(target):
		return []fault{{"link.absolute", name, "The link leads to an absolute place, out of the tree."}}
	}
	at := strings.Split(path.Dir(name), "/")
	if path.Dir(name) == "." {
		at = nil
	}
	left := strings.Split(strings.ReplaceAll(target, `\`, "/"), "/")
	for steps := 0; len(left) > 0; {
		part := left[0]
		left = left[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			if len(at) == 0 {
				return []fault{{"link.outside", name, "The link leads out of the tree."}}
			}
			at = at[:len(at)-1]
			continue
		}
		at = append(slices.Clone(at), part)
		further, link := t.links[strings.Join(at, "/")]
		if !link {
			continue
		}
		if steps++; steps > maxFollowed {
			return []fault{{"link.loop", name, "The link leads through so many others that nobody follows it."}}
		}
		if drive.MatchString(further) || t.unread[strings.Join(at, "/")] {
			return []fault{{"link.outside", name, "The link leads out of the tree, through another one in the patch."}}
		}
		at = at[:len(at)-1]
		left = append(strings.Split(further, "/"), left...)
	}
	if slices.ContainsFunc(strings.Split(folded(strings.Join(at, "/")), "/"), isGit) {
		return []fault{{"link.git", name, "The link leads into .git."}}
	}
	return nil
}
