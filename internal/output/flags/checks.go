package flags

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
)

// check looks at each line that is added to a file of a certain name.
type check struct {
	id, may string // what such a line has
	line    func(line []byte) bool
}

// checksOf are the checks for a file's folded last name. Where the content isn't
// shown, each of them counts as met.
func checksOf(base string) []check {
	switch base {
	case "package.json":
		return []check{{"build.npm", "a script or an entry point of a package", npmLine}, {"licence.manifest", "the licence of the package", begins(`"license`)}}
	case "composer.json":
		return []check{{"build.composer", "a script or a plugin of Composer", contains("scripts", "-cmd", "plugin", "@php", "bin")}}
	case ".gitattributes":
		return []check{{"git.attributes", "an attribute that calls a driver, or hides changes from who reviews them", attributeLine}}
	case "pyproject.toml", "setup.cfg", "tox.ini", "pytest.ini", ".coveragerc", "mypy.ini", "pylintrc", ".pylintrc", "ruff.toml":
		return []check{
			{"build.python", "a build backend, a hook, a plugin or a command of Python's tools", pythonLine}, {"licence.manifest", "the licence of the package", begins("license")},
		}
	case "cargo.toml":
		return []check{
			{"build.cargo", "a build script, a macro or a replaced crate", contains("build", "proc-macro", "links", "patch.", "[patch", "[replace", "runner")}, {"licence.manifest", "the licence of the package", begins("license")},
		}
	case "go.mod", "go.work":
		return []check{{"build.go", "another toolchain or a replaced module", begins("replace", "toolchain", "tool", "godebug")}}
	case "pom.xml":
		return []check{{"build.maven", "a plugin, an extension or a repository of Maven", contains("plugin", "extension", "repositor", "execution", "<goal", "<exec", "modelversion")}}
	}
	if strings.HasSuffix(base, ".go") {
		return []check{{"build.go", "a command of go generate, or flags of a compiler", contains("//go:generate", "#cgo", "//go:linkname")}}
	}
	return nil
}

func contains(words ...string) func([]byte) bool {
	return func(line []byte) bool {
		line = bytes.ToLower(line)
		return slices.ContainsFunc(words, func(w string) bool { return bytes.Contains(line, []byte(w)) })
	}
}

func begins(words ...string) func([]byte) bool {
	return func(line []byte) bool {
		line = bytes.ToLower(bytes.TrimLeft(line, " \t"))
		return slices.ContainsFunc(words, func(w string) bool { return bytes.HasPrefix(line, []byte(w)) })
	}
}

func hasLicence(line []byte) bool { return bytes.Contains(line, []byte("SPDX-License-Identifier")) }

// pythonLine says whether a line may make Python's tools run something.
func pythonLine(line []byte) bool {
	return contains("build", "backend", "requires", "cmdclass", "hook", "addopts", "plugin", "script", "entry", "command", "init", "package_data", "cmake", "-p ", "conftest", "setup")(line)
}

var harmlessAttribute = regexp.MustCompile(`^(-?text(=auto)?|eol=(lf|crlf)|linguist-(language|vendored|documentation|detectable)(=[\w.-]+)?|whitespace=[\w,-]+|-?crlf|encoding=[\w-]+)$`)

// attributeLine says whether a line of attributes has any that is not known to be
// harmless. The first word is what they are for.
func attributeLine(line []byte) bool {
	text := strings.TrimSpace(string(line))
	if text == "" || strings.HasPrefix(text, "#") {
		return false
	}
	if strings.HasPrefix(text, `"`) || strings.HasPrefix(text, "[") {
		return true
	}
	return slices.ContainsFunc(strings.Fields(text)[1:], func(a string) bool { return !harmlessAttribute.MatchString(a) })
}

// The lines of a package.json that are no script for sure: a key that is known to
// be told only, a dependency by its version, an item of a list.
var (
	npmTold    = regexp.MustCompile(`^"(name|version|description|keywords|author|contributors|license|homepage|private|url|email|repository|bugs|type|sideEffects|funding|publishConfig|engines|os|cpu|node|dependencies|devDependencies|peerDependencies|optionalDependencies|peerDependenciesMeta|optional)" ?: ?("[^"\\]*"|true|false|\{\}?|\[\]?),?$`)
	npmVersion = regexp.MustCompile(`^"[^"\\]+" ?: ?"([^"\\]*)",?$`)
	npmRange   = regexp.MustCompile(`^([~^<>=v]*(\d+|x|\*)(\.(\d+|x|\*))*([-+][\w.+-]+)?|-|\|\||latest|next)$`)
	npmItem    = regexp.MustCompile(`^("[^"\\]*",?|[{}\[\]]*,?)$`)
)

// npmLine says whether a line of a package.json may be a script, or what runs
// another way.
func npmLine(line []byte) bool {
	text := strings.TrimSpace(string(line))
	if npmTold.MatchString(text) || npmItem.MatchString(text) {
		return false
	}
	m := npmVersion.FindStringSubmatch(text)
	if m == nil || m[1] == "" {
		return true
	}
	version := m[1]
	if rest, ok := strings.CutPrefix(version, "workspace:"); ok {
		version = rest
	}
	return slices.ContainsFunc(strings.Fields(version), func(w string) bool { return !npmRange.MatchString(w) })
}
