// What modules of the console find in a browser when they are loaded, as far as they need it.
const storage = () => ({ getItem: () => null, setItem: () => {}, removeItem: () => {} });
Object.assign(globalThis, {
  localStorage: storage(),
  sessionStorage: storage(),
  location: new URL("http://localhost:8082/ui/"),
  addEventListener: () => {},
  document: { hidden: false, addEventListener: () => {}, documentElement: { dataset: {} } },
});

/** Loads a module of the console. */
export const load = (path) => import(`../../../../services/query/mqstore/query/console/static/${path}`);
