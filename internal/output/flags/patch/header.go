package patch

import (
	"strconv"
	"strings"
)

// header is what the lines before a file's content say.
type header struct {
	first string // after "diff --git "
	line  int

	oldMode, newMode uint32
	added, removed   bool
	from, to         string
	moved            string // Renamed or Copied
	binary           bool
	seen             map[string]bool
}

// extended takes one line of the header; it returns what is wrong with it.
func (h *header) extended(text string) string {
	for _, field := range []struct {
		prefix string
		take   func(value string) bool
	}{
		{"old mode ", func(v string) bool { return mode(v, &h.oldMode) }},
		{"new mode ", func(v string) bool { return mode(v, &h.newMode) }},
		{"new file mode ", func(v string) bool { h.added = true; return mode(v, &h.newMode) }},
		{"deleted file mode ", func(v string) bool { h.removed = true; return mode(v, &h.oldMode) }},
		{"similarity index ", percent},
		{"dissimilarity index ", percent},
		{"rename from ", func(v string) bool { return h.move(Renamed, v, &h.from) }},
		{"rename to ", func(v string) bool { return h.move(Renamed, v, &h.to) }},
		{"copy from ", func(v string) bool { return h.move(Copied, v, &h.from) }},
		{"copy to ", func(v string) bool { return h.move(Copied, v, &h.to) }},
		{"index ", h.index},
	} {
		value, ok := strings.CutPrefix(text, field.prefix)
		if !ok {
			continue
		}
		if h.seen == nil {
			h.seen = map[string]bool{}
		}
		if h.seen["index "] && field.prefix != "index " {
			return "nothing of a header follows its index line"
		}
		if h.seen[field.prefix] {
			return strconv.Quote(strings.TrimSpace(field.prefix)) + " is said twice"
		}
		h.seen[field.prefix] = true
		if !field.take(value) {
			return strconv.Quote(strings.TrimSpace(field.prefix)) + " says nothing that git would write"
		}
		return ""
	}
	return "the line is none of a header that git writes"
}

func (h *header) move(how, value string, name *string) bool {
	if h.moved != "" && h.moved != how {
		return false
	}
	h.moved = how
	var ok bool
	*name, ok = decoded(value)
	return ok
}

// index reads "hash..hash" with a mode or without one.
func (h *header) index(value string) bool {
	value, text, has := strings.Cut(value, " ")
	if has {
		var m uint32
		if h.oldMode != 0 || h.newMode != 0 || !mode(text, &m) {
			return false
		}
		h.oldMode, h.newMode = m, m
	}
	a, b, ok := strings.Cut(value, "..")
	return ok && hash(a) && hash(b)
}

func hash(text string) bool {
	return len(text) >= 4 && len(text) <= 64 && strings.Trim(text, "0123456789abcdef") == ""
}

func mode(text string, to *uint32) bool {
	n, err := strconv.ParseUint(text, 8, 32)
	*to = uint32(n)
	return err == nil && len(text) == 6 && (n == ModeFile || n == ModeExecutable || n == ModeLink || n == ModeModule)
}

func percent(text string) bool {
	text, ok := strings.CutSuffix(text, "%")
	return ok && number(text) && len(text) <= 3
}

// file puts together what the header says. before and after are the names of the
// lines ahead of the hunks; empty: there are none.
func (h *header) file(before, after string) (File, string) {
	f := File{OldMode: h.oldMode, NewMode: h.newMode, Moved: h.moved, Binary: h.binary}
	switch {
	case h.added && h.removed, (h.added || h.removed) && h.moved != "":
		return f, "a file can't be new, removed and moved at once"
	case h.added && h.oldMode != 0, h.removed && h.newMode != 0, (h.oldMode == 0) != (h.newMode == 0) && !h.added && !h.removed:
		return f, "the modes don't go together"
	case h.moved != "":
		if f.Old, f.New = h.from, h.to; f.Old == "" || f.New == "" || !h.names(f.Old, f.New) {
			return f, "the names of what is moved don't agree"
		}
	default:
		name, ok := same(h.first)
		if !ok {
			return f, "the two names of the file don't agree, or aren't as git writes them"
		}
		f.Old, f.New = name, name
	}
	if h.added {
		f.Old = ""
	}
	if h.removed {
		f.New = ""
	}
	if before != "" && (!agrees(before, "a/", f.Old) || !agrees(after, "b/", f.New)) {
		return f, "the names ahead of the hunks are others than the header's"
	}
	return f, ""
}

// agrees says whether the text names the file, or nothing where there is none.
// git ends a name that has spaces with a tab.
func agrees(text, prefix, name string) bool {
	if name == "" {
		return text == "/dev/null"
	}
	text = strings.TrimSuffix(text, "\t")
	got, ok := decoded(text)
	return ok && got == prefix+name
}

// names says whether the first line of the header is about the two names.
func (h *header) names(old, name string) bool {
	rest, ok := after(h.first, "a/"+old)
	if !ok || !strings.HasPrefix(rest, " ") {
		return false
	}
	rest, ok = after(rest[1:], "b/"+name)
	return ok && rest == ""
}

// after is what follows the name, which stands as it is or in quotes.
func after(text, name string) (string, bool) {
	if strings.HasPrefix(text, `"`) {
		got, rest, ok := unquoted(text)
		return rest, ok && got == name
	}
	return strings.CutPrefix(text, name)
}

// same reads `a/NAME b/NAME`.
func same(text string) (string, bool) {
	if strings.HasPrefix(text, `"`) {
		first, rest, ok := unquoted(text)
		second, end, ok2 := unquoted(strings.TrimPrefix(rest, " "))
		name, a := strings.CutPrefix(first, "a/")
		return name, ok && ok2 && a && end == "" && strings.HasPrefix(rest, ` "`) && name != "" && second == "b/"+name
	}
	half := (len(text) - 1) / 2
	if len(text)%2 == 0 || half < 3 || text[half] != ' ' {
		return "", false
	}
	name, a := strings.CutPrefix(text[:half], "a/")
	return name, a && text[half+1:] == "b/"+name && plain(name)
}

// decoded is a name that stands alone, as it is or in quotes.
func decoded(text string) (string, bool) {
	if strings.HasPrefix(text, `"`) {
		name, rest, ok := unquoted(text)
		return name, ok && rest == "" && name != ""
	}
	return text, text != "" && plain(text)
}

// plain says whether git writes the name without quotes.
func plain(name string) bool {
	for i := range len(name) {
		if c := name[i]; c < ' ' || c == 0x7f || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// unquoted reads a name in quotes, and what follows it.
func unquoted(text string) (name, rest string, ok bool) {
	if !strings.HasPrefix(text, `"`) {
		return "", "", false
	}
	var b []byte
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return string(b), text[i+1:], true
		case c != '\\':
			if c < ' ' {
				return "", "", false
			}
			b = append(b, c)
		case i+3 < len(text) && text[i+1] >= '0' && text[i+1] <= '3':
			n, err := strconv.ParseUint(text[i+1:i+4], 8, 8)
			if err != nil || n == 0 {
				return "", "", false
			}
			b = append(b, byte(n))
			i += 3
		case i+1 < len(text):
			at := strings.IndexByte(`abtnvfr"\`, text[i+1])
			if at < 0 {
				return "", "", false
			}
			b = append(b, "\a\b\t\n\v\f\r\"\\"[at])
			i++
		default:
			return "", "", false
		}
	}
	return "", "", false
}

// Quoted is a name that is harmless to show: as it is when all of it is printable
// ASCII without quotes, else as git writes it.
func Quoted(name string) string {
	bare := plain(name)
	for i := 0; i < len(name) && bare; i++ {
		bare = name[i] < 0x80
	}
	if bare {
		return name
	}
	b := []byte{'"'}
	for i := range len(name) {
		c := name[i]
		at := strings.IndexByte("\a\b\t\n\v\f\r\"\\", c)
		switch {
		case at >= 0:
			b = append(b, '\\', `abtnvfr"\`[at])
		case c < ' ' || c >= 0x7f:
			b = append(b, '\\', '0'+c>>6, '0'+c>>3&7, '0'+c&7)
		default:
			b = append(b, c)
		}
	}
	return string(append(b, '"'))
}
