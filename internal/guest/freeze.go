package guest

// Freeze is the frame from the worker that stops every process but the guest, for
// good: nothing is started, ended or resumed from then on, and files can still be
// read. Stream: request. It may be repeated.
const Freeze Type = 56
