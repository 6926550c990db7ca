package task

import (
	"cmp"
	"slices"
	"time"
)

// RuleModel is the id of the rule that lets an agent ask its models.
const RuleModel = "agent.model"

// ModelTokens is what one answer of a model used, as its server said.
type ModelTokens struct {
	Model      string `json:"model,omitempty"`      // as the server named it; empty: it named none
	Input      int64  `json:"input,omitempty"`      // tokens of the question that no cache had
	Output     int64  `json:"output,omitempty"`     // tokens of the answer, those that were thought included
	CacheRead  int64  `json:"cacheRead,omitempty"`  // tokens of the question that a cache had
	CacheWrite int64  `json:"cacheWrite,omitempty"` // tokens of the question that were put into a cache
	// Estimated says that the server told none, or not all of it, and that the
	// numbers were made of the bytes that passed.
	Estimated bool `json:"estimated,omitempty"`
}

// Sum is how many tokens that is, whatever each costs.
func (t ModelTokens) Sum() int64 { return t.Input + t.Output + t.CacheRead + t.CacheWrite }

// ModelSpend is what the requests to one model came to.
type ModelSpend struct {
	ModelTokens
	Requests  int64 `json:"requests"`
	Estimates int64 `json:"estimates,omitempty"` // of the requests, how many were estimated
	// MicroUSD is what they cost by the installation's prices, in millionths of a
	// dollar; 0 where Priced is false.
	MicroUSD int64 `json:"microUSD"`
	Priced   bool  `json:"priced"` // there is a price for the model
}

// Spend is what a task, a user or a project used of models.
type Spend struct {
	Models []ModelSpend `json:"models"` // by name
}

// Tokens is the sum over all models.
func (s Spend) Tokens() (n int64) {
	for _, m := range s.Models {
		n += m.Sum()
	}
	return n
}

// MicroUSD is what the models with a price cost together.
func (s Spend) MicroUSD() (n int64) {
	for _, m := range s.Models {
		n += m.MicroUSD
	}
	return n
}

// Unpriced is the first model that was used and has no price; empty: each has
// one.
func (s Spend) Unpriced() string {
	i := slices.IndexFunc(s.Models, func(m ModelSpend) bool { return !m.Priced && m.Sum() > 0 })
	if i < 0 {
		return ""
	}
	return cmp.Or(s.Models[i].Model, "(not named)")
}

// BudgetScope says whose budget it is. The zero scope is nobody's.
type BudgetScope string

// The scopes of budgets.
const (
	BudgetTask    BudgetScope = "task"
	BudgetUser    BudgetScope = "user"
	BudgetProject BudgetScope = "project"
)

// BudgetPeriod says when a budget begins anew.
type BudgetPeriod string

// The periods of budgets: a task's is for its whole life; days and months begin
// at midnight UTC.
const (
	PerTask  BudgetPeriod = "task"
	PerDay   BudgetPeriod = "day"
	PerMonth BudgetPeriod = "month"
)

// Start is when the period began that a moment lies in; zero: with the first
// use.
func (p BudgetPeriod) Start(now time.Time) time.Time {
	now = now.UTC()
	switch p {
	case PerDay:
		return time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, time.UTC)
	case PerMonth:
		return time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	case PerTask:
	}
	return time.Time{}
}

// NoLimit in place of a number of a Budget says that there is none.
const NoLimit = -1

// Budget is what a task, a user or a project may use of models. The zero budget
// limits nothing.
type Budget struct {
	Scope    BudgetScope  `json:"scope"`
	Name     string       `json:"name"`               // of the task, the user or the project
	Tokens   int64        `json:"tokens,omitempty"`   // 0: not said; NoLimit: as many as wanted
	MicroUSD int64        `json:"microUSD,omitempty"` // the same, in millionths of a dollar
	Per      BudgetPeriod `json:"per"`
	By       string       `json:"by,omitempty"` // who set it; empty: the task's policy
	At       time.Time    `json:"at,omitzero"`
}

// Limits says whether it limits anything.
func (b Budget) Limits() bool { return b.Tokens > 0 || b.MicroUSD > 0 }

// BudgetWait is one time that a task waited for its budget to be raised.
type BudgetWait struct {
	Task    string
	Number  int64  // of the task, from 1
	Sandbox string // whose processes are held; empty: none is
	Text    string // which budget was met, for people
	Since   time.Time
	Until   time.Time  // then it is over, raised or not
	Ended   *time.Time // nil: it waits
	Raised  bool       // it ended since there is room again
	Told    int        // how many of its two records the audit has
}
