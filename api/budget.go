package api

import "time"

// ModelTokens is what one answer of a model used, as its server said.
type ModelTokens struct {
	Model      string `json:"model,omitempty"`
	Input      int64  `json:"input,omitempty"`
	Output     int64  `json:"output,omitempty"`
	CacheRead  int64  `json:"cacheRead,omitempty"`
	CacheWrite int64  `json:"cacheWrite,omitempty"`
	Estimated  bool   `json:"estimated,omitempty" doc:"The server did not tell, or not all of it; made of the bytes that passed."`
}

// ModelSpend is what the requests to one model came to.
type ModelSpend struct {
	Model      string  `json:"model"`
	Requests   int64   `json:"requests"`
	Input      int64   `json:"input" doc:"Tokens that no cache had."`
	Output     int64   `json:"output" doc:"Tokens."`
	CacheRead  int64   `json:"cacheRead" doc:"Tokens that a cache had."`
	CacheWrite int64   `json:"cacheWrite" doc:"Tokens that were put into a cache."`
	Estimates  int64   `json:"estimates,omitempty" doc:"Requests whose answers did not tell what they used: theirs was estimated."`
	USD        float64 `json:"usd" doc:"By the installation's prices; 0 without one."`
	Priced     bool    `json:"priced" doc:"There is a price for the model."`
}

// Budget is what a task, a user or a project may use of models, and what it
// used.
type Budget struct {
	Scope      string     `json:"scope" doc:"task, user or project."`
	Name       string     `json:"name" doc:"The task's id, the user's or the project's name; \"*\" for those without one of their own."`
	Tokens     int64      `json:"tokens,omitempty" doc:"That may be used; 0: any number."`
	USD        float64    `json:"usd,omitempty" doc:"That may be spent; 0: any amount."`
	Per        string     `json:"per" doc:"task, day or month (UTC)."`
	UsedTokens int64      `json:"usedTokens"`
	UsedUSD    float64    `json:"usedUSD"`
	Unpriced   string     `json:"unpriced,omitempty" doc:"A model that was used and has no price; then usedUSD is less than was spent."`
	By         string     `json:"by,omitempty" doc:"Who set it; empty: the task's policy."`
	At         *time.Time `json:"at,omitempty"`
}

// BudgetList lists budgets.
type BudgetList struct {
	Budgets []Budget `json:"budgets" nullable:"false"`
}

// BudgetChange changes a budget. What is left out stays as it is.
type BudgetChange struct {
	Tokens *int64   `json:"tokens,omitempty" doc:"-1 takes the limit away."`
	USD    *float64 `json:"usd,omitempty" doc:"-1 takes the limit away."`
	Per    string   `json:"per,omitempty" doc:"day or month; of users and projects."`
}

// TaskBudget is what a task used of models, and the budgets that bind it.
type TaskBudget struct {
	Task    string       `json:"task"`
	Waiting bool         `json:"waiting" doc:"The task waits for one of them to be raised."`
	Models  []ModelSpend `json:"models" nullable:"false"`
	Budgets []Budget     `json:"budgets" nullable:"false" doc:"Its own first."`
}

// SpendQuestion is what a gateway asks before a request to a model goes out.
type SpendQuestion struct {
	Sandbox string `json:"sandbox" maxLength:"64"`
	Counted bool   `json:"counted" doc:"The answer will tell what the request used."`
}

// SpendAnswer is what becomes of it.
type SpendAnswer struct {
	State  string `json:"state" doc:"go; free: go, and no budget binds the task; waiting: ask again; refused."`
	Reason string `json:"reason,omitempty"`
	Text   string `json:"text,omitempty"`
}
