package graphql

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

func body(t testing.TB, document string, variables map[string]any) []byte {
	b, err := json.Marshal(map[string]any{"query": document, "variables": variables})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func ask(rule task.GraphQL, body []byte) error {
	return Check(rule, Request{Method: "POST", Header: map[string][]string{"Content-Type": {"application/json; charset=utf-8"}}, Body: body})
}

type vars = map[string]any

func TestDocuments(t *testing.T) {
	rule := task.GraphQL{Repository: "octo/Hello"}
	for _, c := range []struct {
		name, document string
		variables      vars
		ok             bool
	}{
		{"literal", `{ repository(owner: "octo", name: "Hello") { id name } }`, nil, true},
		{"names in another case", `{ repository(owner: "OCTO", name: "hello") { id } }`, nil, true},
		{"variables", `query Q($o: String!, $n: String!) { repository(owner: $o, name: $n) { issues(first: 3) { nodes { number title author { login } } pageInfo { hasNextPage } } } }`, vars{"o": "octo", "n": "Hello"}, true},
		{"a default", `query Q($o: String = "octo") { repository(owner: $o, name: "Hello") { id } }`, nil, true},
		{"a variable before its default", `query Q($o: String = "octo") { repository(owner: $o, name: "Hello") { id } }`, vars{"o": "other"}, false},
		{"null before a default", `query Q($o: String = "octo") { repository(owner: $o, name: "Hello") { id } }`, vars{"o": nil}, false},
		{"no such variable", `query Q { repository(owner: $o, name: "Hello") { id } }`, nil, false},
		{"a variable that is no text", `query Q($o: String!) { repository(owner: $o, name: "Hello") { id } }`, vars{"o": []string{"octo"}}, false},
		{"another repository", `{ repository(owner: "octo", name: "Other") { id } }`, nil, false},
		{"another under an alias", `{ mine: repository(owner: "octo", name: "Hello") { id } repository: repository(owner: "octo", name: "Other") { id } }`, nil, false},
		{"an alias that looks right", `{ repository: viewer { login } }`, nil, false},
		{"by variables of another operation", `query A { repository(owner: "octo", name: "Hello") { id } } query B { viewer { login } }`, nil, false},
		{"the viewer", `{ viewer { login } }`, nil, false},
		{"the viewer's repositories", `{ viewer { repositories(first: 100) { nodes { nameWithOwner } } } }`, nil, false},
		{"a node by id", `{ node(id: "R_1") { ... on Repository { name } } }`, nil, false},
		{"nodes by ids", `{ nodes(ids: ["R_1"]) { id } }`, nil, false},
		{"a search", `{ search(query: "x", type: REPOSITORY, first: 1) { nodes { ... on Repository { name } } } }`, nil, false},
		{"a resource", `{ resource(url: "https://github.com/octo/Hello") { ... on Repository { name } } }`, nil, false},
		{"the root again", `{ relay { viewer { login } } }`, nil, false},
		{"a fragment at the root", `{ ...F } fragment F on Query { viewer { login } }`, nil, false},
		{"a fragment at the root, ours", `{ ...F } fragment F on Query { repository(owner: "octo", name: "Hello") { id } }`, nil, true},
		{"a fragment in a fragment", `{ ...A } fragment A on Query { ...B } fragment B on Query { viewer { login } }`, nil, false},
		{"a circle of fragments", `{ ...A } fragment A on Query { ...B } fragment B on Query { ...A repository(owner: "octo", name: "Hello") { id } }`, nil, true},
		{"a fragment that is nowhere", `{ ...A }`, nil, false},
		{"two fragments of a name", `{ ...A } fragment A on Query { __typename } fragment A on Query { viewer { login } }`, nil, false},
		{"inline at the root", `{ ... { viewer { login } } }`, nil, false},
		{"out by the owner", `{ repository(owner: "octo", name: "Hello") { owner { login ... on User { repositories(first: 9) { nodes { name } } } } } }`, nil, false},
		{"out by an author", `{ repository(owner: "octo", name: "Hello") { issue(number: 1) { author { ... on User { email company } } } } }`, nil, false},
		{"who the author is", `{ repository(owner: "octo", name: "Hello") { issue(number: 1) { author { login ... on User { id name } } } } }`, nil, true},
		{"out by forks", `{ repository(owner: "octo", name: "Hello") { forks(first: 9) { nodes { object(expression: "main:x") { id } } } } }`, nil, false},
		{"the fork of a pull request", `{ repository(owner: "octo", name: "Hello") { pullRequest(number: 1) { headRepository { name owner { login } } headRepositoryOwner { login } headRefName } } }`, nil, true},
		{"into the fork of a pull request", `{ repository(owner: "octo", name: "Hello") { pullRequest(number: 1) { headRepository { object(expression: "main:x") { id } } } } }`, nil, false},
		{"into the branch of a fork", `{ repository(owner: "octo", name: "Hello") { pullRequest(number: 1) { headRef { target { id } } } } }`, nil, false},
		{"back and out", `{ repository(owner: "octo", name: "Hello") { issue(number: 1) { repository { owner { ... on User { gists(first: 1) { nodes { id } } } } } } } }`, nil, false},
		{"back and in again", `{ repository(owner: "octo", name: "Hello") { issue(number: 1) { repository { object(expression: "x") { id } } } } }`, nil, false},
		{"a node of edges by id", `{ repository(owner: "octo", name: "Hello") { issues(first: 1) { edges { node(id: "x") { id } } } } }`, nil, false},
		{"cross references", `{ repository(owner: "octo", name: "Hello") { issue(number: 1) { timelineItems(first: 1) { nodes { ... on CrossReferencedEvent { source { ... on Issue { body } } } } } } } }`, nil, false},
		{"a file", `{ repository(owner: "octo", name: "Hello") { object(expression: "main:README.md") { ... on Blob { text } } } }`, nil, true},
		{"directives don't hide", `query ($x: Boolean = false) { viewer @include(if: $x) { login } }`, nil, false},
		{"introspection", `{ __schema { types { name } } __type(name: "User") { fields { name } } __typename rateLimit { remaining } }`, nil, true},
		{"too many arguments", `{ repository(owner: "octo", name: "Hello", owner: "other") { id } }`, nil, false},
		{"an argument is missing", `{ repository(name: "Hello") { id } }`, nil, false},
		{"renames", `{ repository(owner: "octo", name: "Hello", followRenames: false) { id } }`, nil, true},
		{"a mutation", `mutation { deleteRepository(input: {repositoryId: "R_1"}) { clientMutationId } }`, nil, false},
		{"a subscription", `subscription { repository(owner: "octo", name: "Hello") { id } }`, nil, false},
		{"hidden by a comment", "{ __typename #\r viewer { login } }", nil, false},
		{"hidden by a comment's other end", "{ __typename # viewer\n}", nil, true},
		{"a block string", `{ repository(owner: """octo""", name: "Hello") { id } }`, nil, false},
		{"a block string's end", `{ repository(owner: "octo", name: "Hello") { object(expression: """a""""") { id } } }`, nil, false},
		{"an escape", `{ repository(owner: "oct\u006f", name: "Hello") { id } }`, nil, false},
		{"a byte order mark", "\ufeff{ viewer { login } }", nil, false},
		{"a line separator", "{ __typename # \u2028 viewer { login }\n }", nil, false},
		{"no document", ``, nil, false},
		{"many operations", strings.Repeat("query A { __typename } ", maxOps+1), nil, false},
		{"fragments alone", `fragment F on Query { __typename }`, nil, false},
		{"a schema", `type Query { a: String }`, nil, false},
		{"deep", `{ repository(owner: "octo", name: "Hello") ` + strings.Repeat("{ issue ", 5000) + strings.Repeat("}", 5000) + `}`, nil, false},
		{"long", `{ __typename ` + strings.Repeat("a", maxText) + `}`, nil, false},
	} {
		if err := ask(rule, body(t, c.document, c.variables)); (err == nil) != c.ok {
			t.Errorf("%s: %v, want passed %t", c.name, err, c.ok)
		}
	}
}

func TestMutations(t *testing.T) {
	rule := task.GraphQL{Repository: "octo/Hello", Mutations: []string{"createCommitOnBranch", "addComment"}}
	for _, c := range []struct {
		name, document string
		variables      vars
		ok             bool
	}{
		{"named by the rule", `mutation { addComment(input: {subjectId: "I_1", body: "x"}) { commentEdge { cursor } }}`, nil, false}, // what it answers is no way inside
		{"named by the rule, its answer", `mutation { addComment(input: {subjectId: "I_1", body: "x"}) { clientMutationId }}`, nil, true},
		{"not named", `mutation { addComment(input: {}) { clientMutationId } deleteIssue(input: {issueId: "x"}) { clientMutationId }}`, nil, false},
		{"under an alias", `mutation { addComment: deleteIssue(input: {issueId: "x"}) { clientMutationId }}`, nil, false},
		{"by a fragment", `mutation { ...F } fragment F on Mutation { deleteIssue(input: {issueId: "x"}) { clientMutationId } }`, nil, false},
		{"a commit", `mutation { createCommitOnBranch(input: {branch: {repositoryNameWithOwner: "octo/Hello", branchName: "x"}, message: {headline: "x"}, expectedHeadOid: "0"}) { commit { url } }}`, nil, true},
		{"a commit elsewhere", `mutation { createCommitOnBranch(input: {branch: {repositoryNameWithOwner: "octo/Other", branchName: "x"}}) { commit { url } }}`, nil, false},
		{"a commit by id", `mutation { createCommitOnBranch(input: {branch: {id: "REF_1"}}) { commit { url } }}`, nil, false},
		{"a commit by both", `mutation { createCommitOnBranch(input: {branch: {repositoryNameWithOwner: "octo/Hello", id: "REF_1"}}) { commit { url } }}`, nil, false},
		{"a commit, two branches", `mutation { createCommitOnBranch(input: {branch: {repositoryNameWithOwner: "octo/Hello"}, branch: {repositoryNameWithOwner: "octo/Other"}}) { commit { url } }}`, nil, false},
		{"a commit by a variable", `mutation ($i: CreateCommitOnBranchInput!) { createCommitOnBranch(input: $i) { commit { url } }}`, vars{"i": vars{"branch": vars{"repositoryNameWithOwner": "octo/hello", "branchName": "x"}}}, true},
		{"a commit elsewhere by a variable", `mutation ($i: CreateCommitOnBranchInput!) { createCommitOnBranch(input: $i) { commit { url } }}`, vars{"i": vars{"branch": vars{"repositoryNameWithOwner": "octo/other"}}}, false},
		{"a commit by a variable within", `mutation ($r: String!) { createCommitOnBranch(input: {branch: {repositoryNameWithOwner: $r, branchName: "x"}}) { commit { url } }}`, vars{"r": "octo/other"}, false},
		{"a commit without a branch", `mutation { createCommitOnBranch(input: {}) { commit { url } }}`, nil, false},
	} {
		if err := ask(rule, body(t, c.document, c.variables)); (err == nil) != c.ok {
			t.Errorf("%s: %v, want passed %t", c.name, err, c.ok)
		}
	}
}

func TestBodies(t *testing.T) {
	rule := task.GraphQL{Repository: "octo/Hello"}
	ours := `{ repository(owner: \"octo\", name: \"Hello\") { id } }`
	for text, ok := range map[string]bool{
		`{"query":"` + ours + `"}`:                                                          true,
		`{"query":"` + ours + `","operationName":null,"variables":null}`:                    true,
		`{"query":"` + ours + `","query":"{viewer{login}}"}`:                                false,
		`{"query":"` + ours + `","Query":"{viewer{login}}"}`:                                false,
		`{"query":"` + ours + `","extensions":{"persistedQuery":{}}}`:                       false,
		`{"query":"` + ours + `","id":"stored"}`:                                            false,
		`[{"query":"` + ours + `"}]`:                                                        false,
		`[{"query":"` + ours + `"},{"query":"{viewer{login}}"}]`:                            false,
		`{"query":"` + ours + `"}{"query":"{viewer{login}}"}`:                               false,
		`{"query":"` + ours + `","variables":{"a":1,"a":2}}`:                                false,
		`{"query":"` + ours + `","variables":"{}"}`:                                         false,
		`{"query":["` + ours + `"]}`:                                                        false,
		`{"variables":{}}`:                                                                  false,
		`query { viewer { login } }`:                                                        false,
		`{"query":"` + ours + `","variables":{"a":"` + strings.Repeat("x", MaxBody) + `"}}`: false,
	} {
		if err := ask(rule, []byte(text)); (err == nil) != ok {
			t.Errorf("%.100s: %v, want passed %t", text, err, ok)
		}
	}
	good := body(t, `{ __typename }`, nil)
	for name, q := range map[string]Request{
		"by GET":           {Method: "GET", Header: map[string][]string{"Content-Type": {"application/json"}}, Body: good},
		"with a query":     {Method: "POST", Query: "query={viewer{login}}", Header: map[string][]string{"Content-Type": {"application/json"}}, Body: good},
		"as a document":    {Method: "POST", Header: map[string][]string{"Content-Type": {"application/graphql"}}, Body: good},
		"as a form":        {Method: "POST", Header: map[string][]string{"Content-Type": {"application/x-www-form-urlencoded"}}, Body: good},
		"compressed":       {Method: "POST", Header: map[string][]string{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}, Body: good},
		"without a header": {Method: "POST", Body: good},
	} {
		if Check(rule, q) == nil {
			t.Errorf("%s: passes", name)
		}
	}
	if ask(task.GraphQL{}, good) == nil {
		t.Error("the zero rule allows something")
	}
}

func TestValidRepository(t *testing.T) {
	for text, ok := range map[string]bool{"a/b": true, "a-1/b.c_d": true, "a": false, "a/b/c": false, "/b": false, "a/": false, "a/..": false, "a/.": false, "-a/b": false, "a b/c": false} {
		if ValidRepository(text) != ok {
			t.Errorf("%q: %t", text, !ok)
		}
	}
}

// Of what passes, a reader of its own finds no door in the text: the names that
// stand right before a selection are known ones, and each repository is ours.
func FuzzGraphQL(f *testing.F) {
	for _, d := range []string{
		`{ repository(owner: "octo", name: "Hello") { id owner { login } } }`, `{ viewer { login } }`, `{ a: repository(owner: "octo", name: "x") { id } }`,
		`query($o: String = "octo") { ...F } fragment F on Query { repository(owner: $o, name: "Hello") { issues { nodes { author { login } } } } }`,
		`mutation { a(input: {}) { id } }`, `{ __typename # " } viewer {`, "{ a\r\n{ b } }", `{ node(id: "x") { id } }`, `{ x @include(if: "{") { y } }`,
	} {
		f.Add(d, "octo")
	}
	selection := regexp.MustCompile(`\b(viewer|search|relay|gists|repositories|organizations|forks|timelineItems)\b`)
	strip := regexp.MustCompile(`"(\\.|[^"\\])*"|#[^\n\r]*`)
	f.Fuzz(func(t *testing.T, document, owner string) {
		if ask(task.GraphQL{Repository: "octo/Hello"}, body(t, document, vars{"o": owner})) != nil {
			return
		}
		text := strip.ReplaceAllString(document, "@")
		if found := selection.FindString(regexp.MustCompile(`(\$|@)\w+|\w+\s*:|\bon\s+\w+|\.\.\.\s*\w+|(query|fragment)\s+\w+`).ReplaceAllString(text, "")); found != "" && strings.Contains(text, found+" {") {
			t.Fatalf("%q passes", document)
		}
		for _, word := range []string{"mutation", "subscription"} {
			if strings.HasPrefix(strings.TrimSpace(text), word+" ") {
				t.Fatalf("%q passes", document)
			}
		}
	})
}
