package protect

import (
	"path"
	"slices"
	"strings"

	"github.com/cofferdam/cofferdam/internal/guest"
)

const (
	maxPaths = 4096 // of one protection, those in submodules included
	maxDepth = 256  // of folders that are walked; each holds a descriptor
)

// node is a name in the tree of the paths that rules name.
type node struct {
	name     string
	path     string          // relative to the workspace
	rule     *guest.PathRule // nil: a folder above a leaf
	narrowed bool            // something above it is read-only or hidden
	children map[string]*node
	skip     bool // a writable path that needs nothing
}

// grow makes the tree of the rules.
func grow(rules []guest.PathRule) (*node, error) {
	root := &node{children: map[string]*node{}}
	for i := range rules {
		if err := root.add(&rules[i]); err != nil {
			return nil, err
		}
	}
	return root, nil
}

func (n *node) add(rule *guest.PathRule) error {
	if len(rule.Path) > 4096 || rule.Path == "" || rule.Path != path.Clean(rule.Path) || !local(rule.Path) {
		return guest.Errorf(guest.ReasonInvalid, "path %q can't be protected: it is not clean and relative", rule.Path)
	}
	switch rule.Access {
	case guest.Writable, guest.ReadOnly, guest.Hidden:
	default:
		return guest.Errorf(guest.ReasonInvalid, "path %q: access %q is unknown", rule.Path, rule.Access)
	}
	at := n
	for name := range strings.SplitSeq(rule.Path, "/") {
		next := at.children[name]
		if next == nil {
			next = &node{name: name, path: path.Join(at.path, name), children: map[string]*node{}}
			at.children[name] = next
		}
		at = next
	}
	if at.rule != nil {
		return guest.Errorf(guest.ReasonInvalid, "path %q is named twice", rule.Path)
	}
	at.rule = rule
	return nil
}

func local(p string) bool {
	return p != "." && p != ".." && !strings.HasPrefix(p, "/") && !strings.HasPrefix(p, "../") && strings.IndexByte(p, 0) < 0
}

// find returns the node of a path, or nil.
func (n *node) find(p string) *node {
	at := n
	for name := range strings.SplitSeq(p, "/") {
		if at = at.children[name]; at == nil {
			return nil
		}
	}
	return at
}

// sorted are the children by name, so that every run does the same.
func (n *node) sorted() []*node {
	list := make([]*node, 0, len(n.children))
	for _, c := range n.children {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b *node) int { return strings.Compare(a.name, b.name) })
	return list
}

// narrow marks what lies beneath something read-only or hidden, and drops what
// lies beneath something hidden.
func (n *node) narrow() {
	for _, c := range n.children {
		c.narrowed = n.narrowed
		if n.rule != nil {
			c.narrowed = n.rule.Access != guest.Writable
		}
		c.narrow()
	}
	if n.rule != nil && n.rule.Access == guest.Hidden {
		clear(n.children)
	}
}
