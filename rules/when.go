package rules

import (
	"fmt"
	"reflect"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// When is a condition in CEL (cel.dev): variables method, path, host and ip, and functions header(x), query(x) and
// attr(x), which give "" for what is absent. It is type-checked and bounded when it is parsed, and safe for concurrent
// use.
type When struct {
	text    string
	program cel.Program
}

// The bounds of an expression. An evaluation that costs more than maxWhenCost is refused when the expression is parsed;
// values of a request are taken to be as long as a header may be.
const (
	maxWhenSize  = 1024
	maxWhenDepth = 32
	maxWhenCost  = 100_000
	maxValueSize = 8 << 10
)

// whenRequest is the hidden variable that the functions read: a macro hands it to them.
const whenRequest = "@request"

var whenEnv = sync.OnceValues(func() (*cel.Env, error) {
	options := []cel.EnvOption{
		cel.ClearMacros(),
		cel.Variable(whenRequest, cel.DynType),
		cel.ParserExpressionSizeLimit(maxWhenSize),
		cel.ParserRecursionLimit(maxWhenDepth),
		cel.ASTValidators(cel.ValidateRegexLiterals()),
		cel.RegexProgramSizeLimit(maxRegexSize),
	}
	for _, name := range []string{"method", "path", "host", "ip"} {
		options = append(options, cel.Variable(name, cel.StringType))
	}
	for name, value := range map[string]func(*Request, string) string{
		"header": func(r *Request, name string) string {
			if values := r.Header[canonicalHeader(strings.ToLower(name))]; len(values) > 0 {
				return values[0]
			}
			return ""
		},
		"query": func(r *Request, name string) string { v, _ := r.query(name); return v },
		"attr":  func(r *Request, name string) string { return r.Attr[name] },
	} {
		options = append(options, requestFunction(name, value)...)
	}
	return cel.NewEnv(options...)
})

// requestFunction declares name(x) as a macro for @name(@request, x).
func requestFunction(name string, value func(*Request, string) string) []cel.EnvOption {
	hidden := "@" + name
	macro := cel.GlobalMacro(name, 1, func(f cel.MacroExprFactory, _ ast.Expr, args []ast.Expr) (ast.Expr, *common.Error) {
		return f.NewCall(hidden, f.NewIdent(whenRequest), args[0]), nil
	})
	function := cel.Function(hidden, cel.Overload(hidden+"_string", []*cel.Type{cel.DynType, cel.StringType}, cel.StringType,
		cel.BinaryBinding(func(request, x ref.Val) ref.Val {
			r, ok := request.(requestValue)
			text, isText := x.(types.String)
			if !ok || !isText {
				return types.MaybeNoSuchOverloadErr(x)
			}
			return types.String(value(r.Request, string(text)))
		})))
	return []cel.EnvOption{cel.Macros(macro), function}
}

// ParseWhen compiles an expression.
func ParseWhen(text string) (*When, error) {
	if len(text) > maxWhenSize {
		return nil, fmt.Errorf("the expression is longer than %d bytes", maxWhenSize)
	}
	env, err := whenEnv()
	if err != nil {
		return nil, fmt.Errorf("prepare CEL: %w", err)
	}
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, whenError(issues)
	}
	if checked.OutputType() != cel.BoolType {
		return nil, fmt.Errorf("the expression gives a %s; a condition gives true or false", checked.OutputType())
	}
	estimate, err := env.EstimateCost(checked, sizes{})
	if err != nil {
		return nil, fmt.Errorf("estimate the cost of the expression: %w", err)
	}
	if estimate.Max > maxWhenCost {
		return nil, fmt.Errorf("the expression may cost %d steps for one request; at most %d", estimate.Max, maxWhenCost)
	}
	program, err := env.Program(checked, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(maxWhenCost))
	if err != nil {
		return nil, fmt.Errorf("prepare the expression: %w", err)
	}
	return &When{text: text, program: program}, nil
}

// whenError says in one line what is wrong with an expression, and where.
func whenError(issues *cel.Issues) error {
	const form = "not a CEL expression over method, path, host, ip, header(x), query(x) and attr(x)"
	found := issues.Errors()
	if len(found) == 0 {
		return fmt.Errorf("%s: %w", form, issues.Err())
	}
	message := strings.ReplaceAll(found[0].Message, " (in container '')", "")
	return fmt.Errorf("%s: at character %d: %s", form, found[0].Location.Column()+1, message)
}

func (w *When) String() string { return w.text }

// MarshalText writes the expression.
func (w *When) MarshalText() ([]byte, error) { return []byte(w.text), nil }

// UnmarshalText compiles the expression.
func (w *When) UnmarshalText(text []byte) error {
	parsed, err := ParseWhen(string(text))
	if err == nil {
		*w = *parsed
	}
	return err
}

// holds evaluates the condition. Failed is true when that is not possible: the condition counts as true then, since a
// limit that silently does not apply is the worse surprise.
func (w *When) holds(r *Request) (is, failed bool) {
	value, _, err := w.program.Eval(activation{r})
	if err != nil {
		return true, true
	}
	b, ok := value.(types.Bool)
	if !ok {
		return true, true
	}
	return bool(b), false
}

// activation gives an expression its variables.
type activation struct{ r *Request }

// ResolveName is part of interpreter.Activation.
func (a activation) ResolveName(name string) (any, bool) {
	switch name {
	case "method":
		return a.r.Method, true
	case "path":
		return a.r.Path, true
	case "host":
		return a.r.Host, true
	case "ip":
		v, _ := addressValue(a.r.IP, 128)
		return v, true
	case whenRequest:
		return requestValue{a.r}, true
	}
	return nil, false
}

// Parent is part of interpreter.Activation.
func (a activation) Parent() interpreter.Activation { return nil }

var requestType = types.NewOpaqueType("headgate.Request")

// requestValue carries the request to the functions; an expression cannot name it.
type requestValue struct{ *Request }

// ConvertToNative is part of ref.Val.
func (v requestValue) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("a request is not a %s", t)
}

// ConvertToType is part of ref.Val.
func (v requestValue) ConvertToType(ref.Type) ref.Val {
	return types.NewErr("a request has no other type")
}

// Equal is part of ref.Val.
func (v requestValue) Equal(other ref.Val) ref.Val { return types.Bool(v == other) }

// Type is part of ref.Val.
func (v requestValue) Type() ref.Type { return requestType }

// Value is part of ref.Val.
func (v requestValue) Value() any { return v.Request }

// sizes bounds what an expression may meet, for the estimate of its cost.
type sizes struct{}

// EstimateSize takes every value of a request to be as long as it may be.
func (sizes) EstimateSize(cost.AstNode) *cost.SizeEstimate {
	return &cost.SizeEstimate{Min: 0, Max: maxValueSize}
}

// EstimateCallCost takes one step for each of our functions.
func (sizes) EstimateCallCost(function, _ string, _ *cost.AstNode, _ []cost.AstNode) *cost.CallEstimate {
	if !strings.HasPrefix(function, "@") {
		return nil
	}
	return &cost.CallEstimate{
		CostEstimate: cost.Estimate{Min: 1, Max: 1}, ResultSize: &cost.SizeEstimate{Min: 0, Max: maxValueSize},
	}
}
