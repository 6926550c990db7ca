package task

// EndOfAll is what the end of everything that is lent has ended.
type EndOfAll struct {
	Credentials int          // that were revoked by it
	Leases      int          // that were ended by it
	All         []Credential // every credential, all of them revoked
	Cut         []Lent       // leases whose connections may not be cut yet
}
