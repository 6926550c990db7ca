package task

// The kinds of a Match.
const (
	MatchExact  = "exact"
	MatchPrefix = "prefix"
	MatchRE2    = "re2"    // a regular expression for the whole value
	MatchAbsent = "absent" // there is none of that name
)

// Match says what one parameter of the query or one header must be. What could
// be read in two ways never matches.
type Match struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"` // one of the kinds; another one never matches
	Value string `json:"value,omitempty"`
}

// Body says what the body of a request must be. Exactly one field is set; else
// nothing matches.
type Body struct {
	Models  []string `json:"models,omitempty"` // what asks a model must ask one of these; "*" stands for any run of characters
	GraphQL *GraphQL `json:"graphql,omitempty"`
}

// GraphQL keeps requests to GitHub's GraphQL API to one repository.
type GraphQL struct {
	Repository string   `json:"repository"`          // owner/name
	Mutations  []string `json:"mutations,omitempty"` // that are allowed; empty: none
}

// Narrow says whether the rule is about some requests only, or lends a
// credential to them.
func (r Rule) Narrow() bool {
	return len(r.Methods) > 0 || len(r.Paths) > 0 || len(r.Query) > 0 || len(r.Headers) > 0 || r.Body != nil || r.Credential != ""
}
