// Command cel judges objects as the API server does: by the admission policies that it reads, with the API server's own
// packages, and by the patches of a webhook. It reads one Input on stdin and writes a list of Outcomes.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
)

// Review is one request: object is what is asked for, null where it is to go, and old what was there. Patches come from
// a webhook.
type Review struct {
	Object      json.RawMessage `json:"object"`
	Old         json.RawMessage `json:"old,omitempty"`
	Patches     json.RawMessage `json:"patches,omitempty"`
	Subresource string          `json:"subresource,omitempty"`
	// Who asks, nobody where it is left out.
	User *user.DefaultInfo `json:"user,omitempty"`
}

type Input struct {
	// Of Kubernetes: the CEL that it takes in new policies; "" for these packages' own.
	Version    string                                  `json:"version"`
	Validating []admissionv1.ValidatingAdmissionPolicy `json:"validating"`
	Reviews    []Review                                `json:"reviews"`
}

type Outcome struct {
	Object  json.RawMessage `json:"object,omitempty"`
	Refused string          `json:"refused,omitempty"`
	Error   string          `json:"error,omitempty"`
}

var (
	// What expressions may say is what a server of this version takes, so that the one before it can still read them.
	kubernetes = environment.DefaultCompatibilityVersion()

	scheme = runtime.NewScheme()
	codecs = serializer.NewCodecFactory(scheme)
	groups = []schema.GroupVersion{
		corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion, batchv1.SchemeGroupVersion,
		eventsv1.SchemeGroupVersion, resourcev1.SchemeGroupVersion,
	}
)

func init() {
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme, eventsv1.AddToScheme, resourcev1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
}

// expression is one of a policy's, of the type that it has to have.
type expression struct {
	name, text string
	kinds      []*cel.Type
}

func (e expression) GetName() string          { return e.name }
func (e expression) GetExpression() string    { return e.text }
func (e expression) ReturnTypes() []*cel.Type { return e.kinds }

func decode(text json.RawMessage) (runtime.Object, error) {
	if len(text) == 0 || string(text) == "null" {
		return nil, nil
	}
	object, _, err := codecs.UniversalDeserializer().Decode(text, nil, nil)
	return object, err
}

func encode(object runtime.Object) (json.RawMessage, error) {
	return runtime.Encode(codecs.LegacyCodec(groups...), object)
}

func attributes(each Review, object, old runtime.Object) (*admission.VersionedAttributes, error) {
	there := object
	if there == nil {
		there = old
	}
	kind := there.GetObjectKind().GroupVersionKind()
	accessor, err := meta.Accessor(there)
	if err != nil {
		return nil, err
	}
	resource := kind.GroupVersion().WithResource(strings.ToLower(kind.Kind) + "s")
	operation, options := admission.Create, runtime.Object(&metav1.CreateOptions{})
	if object == nil {
		operation, options = admission.Delete, &metav1.DeleteOptions{}
	} else if old != nil {
		operation, options = admission.Update, &metav1.UpdateOptions{}
	}
	var asks user.Info
	if each.User != nil {
		asks = each.User
	}
	all := admission.NewAttributesRecord(
		object, old, kind, namespaceOf(accessor), accessor.GetName(), resource, each.Subresource, operation, options,
		false, asks)
	return &admission.VersionedAttributes{Attributes: all, VersionedKind: kind, VersionedObject: object, VersionedOldObject: old}, nil
}

func namespaceOf(object metav1.Object) string {
	if object.GetNamespace() == "" {
		return "default"
	}
	return object.GetNamespace()
}

func selected(constraints *admissionv1.MatchResources, of *admission.VersionedAttributes) bool {
	for _, rule := range constraints.ResourceRules {
		matcher := rules.Matcher{Rule: rule.RuleWithOperations, Attr: of.Attributes}
		if matcher.Matches() {
			return true
		}
	}
	return false
}

func matcherOf(compiler *plugincel.CompositedCompiler, conditions []admissionv1.MatchCondition, fail *admissionv1.FailurePolicyType) matchconditions.Matcher {
	accessors := make([]plugincel.ExpressionAccessor, len(conditions))
	for i := range conditions {
		accessors[i] = (*matchconditions.MatchCondition)(&conditions[i])
	}
	options := plugincel.OptionalVariableDeclarations{HasAuthorizer: true}
	return matchconditions.NewMatcher(compiler.CompileCondition(accessors, options, environment.NewExpressions), fail, "policy", "cel", "cel")
}

func newCompiler(variables []admissionv1.Variable) (*plugincel.CompositedCompiler, error) {
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(kubernetes))
	if err != nil {
		return nil, err
	}
	options := plugincel.OptionalVariableDeclarations{HasAuthorizer: true}
	for _, each := range variables {
		variable := expression{each.Name, each.Expression, []*cel.Type{cel.AnyType, cel.DynType}}
		// NewExpressions: what a server takes from users, not what it puts up with when it is stored already.
		if result := compiler.CompileAndStoreVariable(variable, options, environment.NewExpressions); result.Error != nil {
			return nil, fmt.Errorf("variable %s: %s", each.Name, result.Error.Detail)
		}
	}
	return compiler, nil
}

type validation struct {
	policy     *admissionv1.ValidatingAdmissionPolicy
	compiler   *plugincel.CompositedCompiler
	matcher    matchconditions.Matcher
	conditions plugincel.ConditionEvaluator
	messages   plugincel.ConditionEvaluator
}

func compileValidation(policy *admissionv1.ValidatingAdmissionPolicy) (*validation, error) {
	compiler, err := newCompiler(policy.Spec.Variables)
	if err != nil {
		return nil, err
	}
	var conditions, messages []plugincel.ExpressionAccessor
	for _, each := range policy.Spec.Validations {
		conditions = append(conditions, expression{"", each.Expression, []*cel.Type{cel.BoolType}})
		messages = append(messages, expression{"", each.MessageExpression, []*cel.Type{cel.StringType}})
	}
	return &validation{
		policy, compiler, matcherOf(compiler, policy.Spec.MatchConditions, policy.Spec.FailurePolicy),
		compiler.CompileCondition(conditions, plugincel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions),
		compiler.CompileCondition(messages, plugincel.OptionalVariableDeclarations{}, environment.NewExpressions),
	}, nil
}

// judge adds to the outcome the first denial, as the API server shows one.
func (v *validation) judge(of *admission.VersionedAttributes, outcome *Outcome) error {
	ctx := v.compiler.CreateContext(context.Background())
	if result := v.matcher.Match(ctx, of, nil, nil); result.Error != nil || !result.Matches {
		return result.Error
	}
	request := plugincel.CreateAdmissionRequest(
		of.Attributes, metav1.GroupVersionResource(of.GetResource()), metav1.GroupVersionKind(of.VersionedKind))
	namespace := plugincel.CreateNamespaceObject(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	none := plugincel.OptionalVariableBindings{}
	results, left, err := v.conditions.ForInput(ctx, of, request, none, namespace, celconfig.RuntimeCELCostBudget)
	if err != nil {
		return err
	}
	messages, _, err := v.messages.ForInput(ctx, of, request, none, namespace, left)
	if err != nil {
		return err
	}
	for i, result := range results {
		if result.Error != nil {
			return result.Error
		}
		if result.EvalResult == types.True {
			continue
		}
		// The API server shows another text where this one is of several lines, or too long.
		said, isText := messages[i].EvalResult.Value().(string)
		if messages[i].Error != nil || !isText || strings.Contains(said, "\n") || len(said) > celconfig.MaxEvaluatedMessageExpressionSizeBytes {
			return fmt.Errorf("no message from %s: %v", v.policy.Name, messages[i].Error)
		}
		if outcome.Refused == "" {
			outcome.Refused = said
		}
	}
	return nil
}

func patched(text, patches json.RawMessage) (json.RawMessage, error) {
	if len(patches) == 0 {
		return text, nil
	}
	decoded, err := jsonpatch.DecodePatch(patches)
	if err != nil {
		return nil, err
	}
	return decoded.Apply(text)
}

func review(each Review, validations []*validation) (outcome Outcome) {
	fail := func(err error) Outcome { return Outcome{Error: err.Error()} }
	text, err := patched(each.Object, each.Patches)
	if err != nil {
		return fail(err)
	}
	object, err := decode(text)
	if err != nil {
		return fail(err)
	}
	old, err := decode(each.Old)
	if err != nil {
		return fail(err)
	}
	of, err := attributes(each, object, old)
	if err != nil {
		return fail(err)
	}
	for _, validation := range validations {
		if selected(validation.policy.Spec.MatchConstraints, of) {
			if err := validation.judge(of, &outcome); err != nil {
				return fail(err)
			}
		}
	}
	if object == nil {
		return outcome
	}
	if outcome.Object, err = encode(of.VersionedObject); err != nil {
		return fail(err)
	}
	return outcome
}

func run() error {
	var input Input
	if err := json.NewDecoder(os.Stdin).Decode(&input); err != nil {
		return err
	}
	if input.Version != "" {
		kubernetes = version.MustParse(input.Version)
	}
	var validations []*validation
	for i := range input.Validating {
		made, err := compileValidation(&input.Validating[i])
		if err != nil {
			return err
		}
		validations = append(validations, made)
	}
	outcomes := make([]Outcome, len(input.Reviews))
	for i, each := range input.Reviews {
		outcomes[i] = review(each, validations)
	}
	return json.NewEncoder(os.Stdout).Encode(outcomes)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
