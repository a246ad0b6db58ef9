// Package rulefile reads and writes rule files: YAML, or JSON, which is read by the same schema. The schema is one table,
// [Reference]; the decoder's keys, the canonical form, `rulectl explain` and the JSON schema for editors follow from it.
//
// Decoding is strict, because a rule that was read as something else than its author meant is worse than none: an
// unknown or repeated key, a value of the wrong kind and every YAML device that hides what is written (anchors, aliases,
// merge keys, tags) are problems. All problems of all files are reported at once, as one [rules.ValidationError], each
// with a stable code and its place. The form of a file is judged here (HG00xx); what a spec may say is judged by
// package rules (HG01xx), and the places of its problems are found here again.
//
// [FormatFile] writes the one canonical form. Formatting keeps comments and meaning, or refuses: its result is
// read back and compared before it is handed out.
//
// A file comes from anywhere, so its size and the number of its parts are bounded before it is parsed. The package does
// no I/O, keeps no state and is safe for concurrent use.
package rulefile
