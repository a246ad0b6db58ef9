package deploy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	strict "sigs.k8s.io/json"
)

// manifests are the objects of one file.
type manifests struct {
	configMaps map[string]*corev1.ConfigMap
	pods       []corev1.PodTemplateSpec
	services   []*corev1.Service
	policies   []*networkingv1.NetworkPolicy
}

// readManifests decodes a file as the API server does with strict validation: an unknown or repeated field is an error.
func readManifests(t *testing.T, name string) (m manifests) {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	m.configMaps = map[string]*corev1.ConfigMap{}
	for documents := yaml.NewDecoder(bytes.NewReader(content)); ; {
		var tree map[string]any
		if err := documents.Decode(&tree); errors.Is(err, io.EOF) {
			return m
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		asJSON, err := json.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		into := func(object any) {
			problems, err := strict.UnmarshalStrict(asJSON, object)
			if err = errors.Join(append(problems, err)...); err != nil {
				t.Fatalf("%s: %v %v: %v", name, tree["apiVersion"], tree["kind"], err)
			}
		}
		version, _ := tree["apiVersion"].(string)
		kind, _ := tree["kind"].(string)
		switch version + " " + kind {
		case "v1 Namespace":
			into(&corev1.Namespace{})
		case "policy/v1 PodDisruptionBudget":
			into(&policyv1.PodDisruptionBudget{})
		case "v1 ConfigMap":
			o := &corev1.ConfigMap{}
			into(o)
			m.configMaps[o.Name] = o
		case "v1 Service":
			o := &corev1.Service{}
			into(o)
			m.services = append(m.services, o)
		case "networking.k8s.io/v1 NetworkPolicy":
			o := &networkingv1.NetworkPolicy{}
			into(o)
			m.policies = append(m.policies, o)
		case "apps/v1 Deployment":
			o := &appsv1.Deployment{}
			into(o)
			if o.Spec.Selector.MatchLabels["app.kubernetes.io/name"] != o.Spec.Template.Labels["app.kubernetes.io/name"] {
				t.Errorf("%s: %s does not select its own pods", name, o.Name)
			}
			m.pods = append(m.pods, o.Spec.Template)
		default:
			t.Fatalf("%s: this test does not know %s %s", name, version, kind)
		}
	}
}

// made are the objects that the files' comments say how to make, with what is in them.
var made = map[string]map[string]string{
	"headgate-database": {"HEADGATE_DATABASE_URL": "postgres://headgate@postgres/headgate"},
	"headgate-sidecar":  {"HEADGATE_STORE": "rediss://headgate@redis:6379", "token": "t"},
}

func TestKubernetesManifestsFitThePrograms(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"examples/kubernetes/controlplane.yaml", "examples/kubernetes/service.yaml"} {
		m := readManifests(t, name)
		if len(m.pods) != 1 || len(m.services) != 1 {
			t.Fatalf("%s: %d deployments and %d services, want one of each", name, len(m.pods), len(m.services))
		}
		pod := m.pods[0].Spec
		ports := map[string]bool{}
		programs := 0
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			for _, p := range c.Ports {
				ports[p.Name] = true
			}
			program, is := strings.CutPrefix(c.Image, "registry.example.com/headgate/")
			if !is {
				continue
			}
			programs++
			program, _, _ = strings.Cut(program, ":")
			if err := checkSettings(program, m.environment(t, c)); err != nil {
				t.Errorf("%s: container %s: %v", name, c.Name, err)
			}
			checkContainer(t, name, pod, c, ports)
		}
		if programs != 1 {
			t.Errorf("%s: %d containers run a program of headgate, want 1", name, programs)
		}
		for _, p := range m.services[0].Spec.Ports {
			if !ports[p.TargetPort.String()] {
				t.Errorf("%s: the service's port %s goes to %s, which no container has", name, p.Name, p.TargetPort.String())
			}
		}
		for _, policy := range m.policies {
			for _, rule := range policy.Spec.Ingress {
				for _, p := range rule.Ports {
					if !ports[p.Port.String()] {
						t.Errorf("%s: the policy %s names port %s, which no container has", name, policy.Name, p.Port)
					}
				}
			}
		}
	}
}

// checkContainer wants probes of ports that are there, on paths that the program has, and volumes that are there.
func checkContainer(t *testing.T, name string, pod corev1.PodSpec, c corev1.Container, ports map[string]bool) {
	t.Helper()
	for path, probe := range map[string]*corev1.Probe{"/startupz": c.StartupProbe, "/readyz": c.ReadinessProbe, "/livez": c.LivenessProbe} {
		if probe == nil && path == "/startupz" {
			continue
		}
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != path || !ports[probe.HTTPGet.Port.String()] {
			t.Errorf("%s: container %s: the probe of %s is %v", name, c.Name, path, probe)
		}
	}
	for _, mount := range c.VolumeMounts {
		if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name }) {
			t.Errorf("%s: container %s: there is no volume %s", name, c.Name, mount.Name)
		}
	}
	if s := c.SecurityContext; s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
		t.Errorf("%s: container %s can write its image", name, c.Name)
	}
}

// environment is what the container's program gets.
func (m manifests) environment(t *testing.T, c corev1.Container) map[string]string {
	t.Helper()
	environment := map[string]string{}
	for _, from := range c.EnvFrom {
		switch {
		case from.ConfigMapRef != nil:
			maps.Copy(environment, m.configMaps[from.ConfigMapRef.Name].Data)
		case from.SecretRef != nil:
			maps.Copy(environment, made[from.SecretRef.Name])
		}
	}
	for _, e := range c.Env {
		value := e.Value
		if from := e.ValueFrom; from != nil && from.SecretKeyRef != nil {
			value = made[from.SecretKeyRef.Name][from.SecretKeyRef.Key]
		} else if from != nil && from.FieldRef != nil {
			value = from.FieldRef.FieldPath
		}
		if value == "" {
			t.Errorf("container %s: %s is empty", c.Name, e.Name)
		}
		environment[e.Name] = value
	}
	return environment
}
