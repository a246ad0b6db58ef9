package rulefile

import (
	"bytes"
	_ "embed" // the schema as it is published
	"encoding/json"
	"fmt"
	"strings"
)

// JSONSchema returns the schema for editors (JSON Schema, draft 2020-12). What it refuses the decoder refuses too; what
// needs more than one place of the file to be judged, such as a key that names a segment of a path, only the decoder
// refuses.
func JSONSchema() []byte { return bytes.Clone(publishedSchema) }

//go:embed ruleset.schema.json
var publishedSchema []byte

// fragment is a part of a JSON schema.
type fragment = map[string]any

const schemaID = "https://headgate.dev/schema/ruleset.schema.json"

// buildSchema makes the schema from the reference; a test holds the published file to it.
func buildSchema() ([]byte, error) {
	root := objectSchema(ruleSetObject)
	root["$schema"], root["$id"] = "https://json-schema.org/draft/2020-12/schema", schemaID
	root["title"] = "headgate rule set"
	defs := fragment{}
	for _, o := range []*Object{exemptionObject, ruleObject, matchObject, conditionObject, keyPartObject, planObject, namedLimitObject, costObject, responseObject} {
		defs[defName(o)] = objectSchema(o)
	}
	rule := defs[defName(ruleObject)].(fragment) //nolint:errcheck,forcetypeassert // made three lines above
	rule["oneOf"] = []any{fragment{"required": []string{"limit"}}, fragment{"required": []string{"limits"}}}
	condition := defs[defName(conditionObject)].(fragment) //nolint:errcheck,forcetypeassert // made above
	condition["minProperties"], condition["maxProperties"] = 1, 1
	root["$defs"] = defs
	b, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the schema: %w", err)
	}
	return append(b, '\n'), nil
}

func defName(o *Object) string { return strings.ReplaceAll(o.Name, " ", "-") }

func objectSchema(o *Object) fragment {
	properties, required := fragment{}, []string{}
	for _, f := range o.Fields {
		s := fragment{"description": f.Meaning, "examples": []any{f.Example}}
		for k, v := range f.schema {
			s[k] = v
		}
		properties[f.Name] = s
		if f.Required {
			required = append(required, f.Name)
		}
	}
	s := fragment{"type": "object", "description": o.Meaning, "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

// The forms of values. Lengths are counted in characters here and in bytes by the decoder, which is at least as strict.
const (
	amountPattern = `[0-9](_*[0-9])*`
	windowPattern = `(0*[1-9][0-9]*)?(s|sec|second|min|minute|h|hour|d|day)`
	ratePattern   = amountPattern + `/` + windowPattern
	sourcePattern = `^(ip|ip/([1-9]|[1-9][0-9]|1[01][0-9]|12[0-8])|method|host|path|path\.[a-z0-9_-]{1,63}|` +
		`header:[A-Za-z0-9!#$%&'*+.^_|~` + "`" + `-]{1,256}|(query|cookie|attr):[\s\S]{1,256})$`
)

var (
	textSchema         = fragment{"type": "string", "maxLength": 1024}
	nonEmptyTextSchema = fragment{"type": "string", "minLength": 1, "maxLength": 1024}
	titleSchema        = fragment{"type": "string", "maxLength": 200, "pattern": `^[^\n\t]*$`}
	whenSchema         = fragment{"type": "string", "minLength": 1, "maxLength": 1024}
	boolSchema         = fragment{"type": "boolean"}
	nameSchema         = fragment{"type": "string", "pattern": `^[a-z0-9-]{1,63}$`}
	sourceSchema       = fragment{"type": "string", "pattern": sourcePattern}
	rateSchema         = fragment{"type": "string", "pattern": `^\s*(unlimited|` + ratePattern + `(\s+burst\s+` + amountPattern + `)?)\s*$`}
	failureSchema      = fragment{"type": "string", "pattern": `^\s*(open|closed|local\s+` + ratePattern + `)\s*$`}
	algorithmSchema    = words("token-bucket", "sliding-window")
	statusSchema       = fragment{"type": "integer", "minimum": 400, "maximum": 599}
	// A number grouped with "_" is a text to YAML 1.2.
	numberSchema = fragment{"anyOf": []any{
		fragment{"type": "integer", "minimum": 0, "maximum": 1_000_000_000_000},
		fragment{"type": "string", "pattern": `^[1-9][0-9]*(_+[0-9]+)+$`},
	}}

	methodSchema     = fragment{"type": "string", "pattern": "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"}
	hostSchema       = fragment{"type": "string", "minLength": 1, "maxLength": 1024, "pattern": `[^.]$`}
	pathSchema       = fragment{"type": "string", "pattern": `^(/[^?#*]*|(/[^?#*]*)?/\*)$`, "maxLength": 1024}
	cidrSchema       = fragment{"type": "string", "pattern": `^[0-9a-fA-F:.]+/[0-9]{1,3}$`}
	grpcSchema       = fragment{"type": "string", "pattern": `^[A-Za-z0-9_.]+/([A-Za-z0-9_]+|\*)$`}
	headerNameSchema = fragment{"pattern": "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$", "maxLength": 256}
	keyNameSchema    = fragment{"minLength": 1, "maxLength": 256}

	labelsSchema = fragment{
		"type": "object", "maxProperties": 64,
		"propertyNames":        fragment{"pattern": `^[A-Za-z0-9][A-Za-z0-9_./-]{0,62}$`},
		"additionalProperties": fragment{"type": "string", "maxLength": 256},
	}
	keySchema    = fragment{"type": "array", "maxItems": 8, "items": withShort(keyPartObject)}
	valuesSchema = fragment{"type": "object", "minProperties": 1, "maxProperties": 1000, "propertyNames": fragment{"maxLength": 256}, "additionalProperties": rateSchema}
	limitSchema  = withShort(planObject)
	limitsSchema = fragment{"type": "array", "minItems": 1, "maxItems": 4, "items": refTo(namedLimitObject)}
	costSchema   = fragment{"anyOf": []any{numberSchema, fragment{"type": "array", "minItems": 1, "maxItems": 100, "items": refTo(costObject)}}}
	notSchema    = fragment{"allOf": []any{refTo(matchObject), fragment{"minProperties": 1, "properties": fragment{"not": false}}}}
)

func constant(value string) fragment { return fragment{"const": value} }

func words(known ...string) fragment { return fragment{"enum": known} }

func refTo(o *Object) fragment { return fragment{"$ref": "#/$defs/" + defName(o)} }

func listOf(o *Object) fragment { return fragment{"type": "array", "items": refTo(o)} }

// withShort is the mapping, or the form besides it.
func withShort(o *Object) fragment { return fragment{"anyOf": []any{o.short, refTo(o)}} }

func nonEmpty(o *Object) fragment {
	return fragment{"allOf": []any{refTo(o), fragment{"minProperties": 1}}}
}

// oneOrMore is one value or a list of them.
func oneOrMore(of fragment) fragment {
	return fragment{"anyOf": []any{of, fragment{"type": "array", "minItems": 1, "maxItems": 1000, "items": of}}}
}

func mapOf(names fragment, o *Object) fragment {
	return fragment{"type": "object", "minProperties": 1, "maxProperties": 64, "propertyNames": names, "additionalProperties": withShort(o)}
}
