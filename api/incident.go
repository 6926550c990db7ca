package api

// RevokeEverything asks for the end of everything that is lent.
type RevokeEverything struct {
	Keys bool `json:"keys,omitempty" doc:"Also make the key of the runs' tokens new, at once."`
}

// EverythingRevoked tells what the end of everything that is lent has ended.
type EverythingRevoked struct {
	Credentials int          `json:"credentials" doc:"That were revoked by this call; all others were before."`
	Leases      int          `json:"leases" doc:"That were ended by this call."`
	Machines    []MachineCut `json:"machines" nullable:"false" doc:"Where connections under ended leases may have been open."`
	Minted      int          `json:"minted" doc:"Short-lived values that are being revoked at who made them."`
	Keys        string       `json:"keys,omitempty" doc:"What became of the key of the runs' tokens; empty: not asked for."`
}

// MachineCut tells whether a machine cut the connections under ended leases.
type MachineCut struct {
	Worker string `json:"worker"`
	Leases int    `json:"leases"`
	Cut    bool   `json:"cut" doc:"False: it did not answer, and what it holds ends within a minute. Ask again when it is back."`
}
